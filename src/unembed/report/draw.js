// Draws every picture of the page: once when it opens, again when the colour scheme or the width changes, and in light
// colours on paper. The descriptions stand in the element "pictures"; nothing is fetched.
(() => {
  "use strict";
  const { themes, charts, not_drawn } = JSON.parse(document.getElementById("pictures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const paper = window.matchMedia("print");
  const drawn = new Map();
  let printing = false;

  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true"); // the table under the picture says the same to a screen reader
  document.body.append(tip);

  // All text goes in as text: a token is never markup.
  function point(handler, event, item, value) {
    if (value === null || value === undefined || value === "") {
      tip.hidden = true;
      return;
    }
    const list = document.createElement("dl");
    for (const [name, shown] of Object.entries(value)) {
      const term = document.createElement("dt");
      const text = document.createElement("dd");
      term.textContent = name;
      text.textContent = shown;
      list.append(term, text);
    }
    tip.replaceChildren(list);
    tip.hidden = false;
    const touch = event.changedTouches ? event.changedTouches[0] : event;
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    const above = touch.clientY + 18 + tip.offsetHeight > window.innerHeight;
    tip.style.left = Math.max(8, Math.min(touch.clientX + 14, room)) + "px";
    tip.style.top = (above ? touch.clientY - tip.offsetHeight - 12 : touch.clientY + 18) + "px";
  }

  // The legend stands in columns as wide as its longest name; Vega does not break it by itself.
  function widest(spec) {
    const names = (spec.layer || []).flatMap((layer) => layer.encoding?.color?.scale?.domain || []);
    const letters = document.createElement("canvas").getContext("2d");
    letters.font = "12px " + spec.config.font;
    return 32 + Math.max(30, ...names.map((name) => letters.measureText(String(name)).width));
  }

  async function draw(id) {
    const box = document.getElementById(id);
    const width = Math.floor(box.clientWidth);
    const config = structuredClone(themes[dark.matches && !printing ? "dark" : "light"]);
    const spec = { ...charts[id], config };
    config.legend.columns = Math.max(1, Math.floor((width - 48) / widest(spec)));
    if (spec.width === "container") spec.width = Math.max(160, width);
    const before = drawn.get(id);
    drawn.set(id, { width });
    if (before && before.picture) before.picture.finalize();
    try {
      const picture = await vegaEmbed(box, spec, {
        mode: "vega-lite",
        renderer: "svg",
        actions: false,
        defaultStyle: false,
        tooltip: point,
        formatLocale: config.locale.number,
      });
      drawn.set(id, { width, picture });
    } catch (error) {
      box.textContent = not_drawn;
      console.error(id, error);
    }
  }

  function drawAll() {
    tip.hidden = true;
    Object.keys(charts).forEach(draw);
  }

  function print(begins) {
    if (printing === begins) return;
    printing = begins;
    if (dark.matches) drawAll();
  }

  drawAll();
  dark.addEventListener("change", drawAll);
  paper.addEventListener("change", (event) => print(event.matches));
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  window.addEventListener("scroll", () => (tip.hidden = true), { passive: true });

  // Grids keep the size of their cells and scroll; all others are as wide as their box.
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const known = drawn.get(target.id);
      const width = Math.floor(target.clientWidth);
      if (known && charts[target.id].width === "container" && width && known.width !== width) draw(target.id);
    }
  });
  Object.keys(charts).forEach((id) => resized.observe(document.getElementById(id)));
})();
