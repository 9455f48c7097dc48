// Draws every picture of the page: once when it opens, again when the colour scheme or the width changes, and in light
// colours on paper. The descriptions stand in the element "pictures"; nothing is fetched. Each picture is one stop for the
// keyboard: arrow keys go from mark to mark, Home and End to the first and the last, Escape leaves. A grid in several
// windows shows one of them; buttons, Page Up and Page Down go to the others, which are unpacked when they are looked at.
(() => {
  "use strict";
  const { themes, charts, windows, not_drawn, keys, window_keys } = JSON.parse(document.getElementById("pictures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const paper = window.matchMedia("print");
  const drawn = new Map();
  const ids = [...Object.keys(charts), ...Object.keys(windows)];
  const at = new Map(); // which window of a grid is shown
  let turning = Promise.resolve(); // one after the other: a box takes one picture at a time
  let printing = false;

  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true"); // what is pointed at stands in the table; what the keys reach is said below
  const said = document.createElement("div");
  said.className = "said";
  said.setAttribute("role", "status");
  document.body.append(tip, said);

  // All text goes in as text: a token is never markup. `x` and `y` are where the tip may not cover.
  function show(value, x, y) {
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
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    const above = y + 18 + tip.offsetHeight > window.innerHeight;
    tip.style.left = Math.max(8, Math.min(x + 14, room)) + "px";
    tip.style.top = (above ? y - tip.offsetHeight - 12 : y + 18) + "px";
  }

  function point(handler, event, item, value) {
    const touch = event?.changedTouches ? event.changedTouches[0] : event; // none when a picture is taken down
    if (!touch) tip.hidden = true;
    else show(value, touch.clientX, touch.clientY);
  }

  // What has a tip of its own and is no text: cells, bars, points, and the unseen discs on a line.
  function marks(box) {
    return [...box.querySelectorAll(".mark-rect.role-mark > path, .mark-symbol.role-mark > path")]
      .filter((mark) => mark.__data__ && mark.__data__.tooltip)
      .map((mark) => {
        const r = mark.getBoundingClientRect();
        return { mark, x: r.left + r.width / 2, y: r.top + r.height / 2 };
      });
  }

  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  // The nearest mark in a direction; what lies aside counts thrice, so that rows and columns are kept.
  function next(all, from, [dx, dy]) {
    let best = null;
    let least = Infinity;
    for (const other of all) {
      const along = (other.x - from.x) * dx + (other.y - from.y) * dy;
      const aside = Math.abs((other.x - from.x) * dy) + Math.abs((other.y - from.y) * dx);
      if (along > 0.5 && along + 3 * aside < least) {
        least = along + 3 * aside;
        best = other;
      }
    }
    return best;
  }

  function leave(box) {
    box.querySelectorAll(".at").forEach((mark) => mark.classList.remove("at"));
    tip.hidden = true;
  }

  function tell(mark) {
    const r = mark.getBoundingClientRect();
    show(mark.__data__.tooltip, r.left + r.width / 2, r.bottom);
  }

  function go(box, { mark }) {
    leave(box);
    mark.classList.add("at");
    mark.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
    tell(mark);
    said.textContent = Object.entries(mark.__data__.tooltip).map(([name, shown]) => name + ": " + shown).join(", ");
  }

  function press(event) {
    const box = event.currentTarget;
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") {
      leave(box);
      return;
    }
    if ((event.key === "PageUp" || event.key === "PageDown") && windows[box.id]?.length > 1) {
      event.preventDefault();
      turn(box.id, event.key === "PageUp" ? -1 : 1);
      return;
    }
    if (!(event.key in ARROWS) && event.key !== "Home" && event.key !== "End") return;
    const all = marks(box);
    if (!all.length) return;
    event.preventDefault();
    const now = all.find(({ mark }) => mark.classList.contains("at"));
    if (event.key === "Home" || event.key === "End") go(box, event.key === "Home" ? all[0] : all[all.length - 1]);
    else if (!now) go(box, all[0]);
    else go(box, next(all, now, ARROWS[event.key]) || now);
  }

  function takeKeyboard(box) {
    // each drawing gives the box a name and a role of its own, so ours are set again
    const known = windows[box.id]?.length > 1 ? [box.dataset.name, keys, window_keys] : [box.dataset.name, keys];
    box.setAttribute("role", "application");
    box.setAttribute("aria-label", known.join(", "));
    if (box.tabIndex === 0) return;
    box.tabIndex = 0;
    box.addEventListener("keydown", press);
    box.addEventListener("blur", () => leave(box));
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
    box.dataset.name ??= box.getAttribute("aria-label");
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
      // Its marks are reached through the box, and told one by one; read out all at once they would be noise.
      box.querySelector("svg").setAttribute("aria-hidden", "true");
      takeKeyboard(box);
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

  async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  async function show_window(id, to) {
    const all = windows[id];
    if (!all[to]) return;
    try {
      charts[id] = await unpacked(all[to].packed);
    } catch (error) {
      document.getElementById(id).textContent = not_drawn;
      console.error(id, error);
      return;
    }
    const isFirst = !at.has(id);
    at.set(id, to);
    const controls = document.getElementById(id + "-windows");
    if (controls) {
      controls.hidden = false;
      controls.querySelector("span").textContent = all[to].label;
      // not "disabled": a button that has the keyboard would lose it
      controls.querySelector(".before").setAttribute("aria-disabled", to === 0);
      controls.querySelector(".after").setAttribute("aria-disabled", to === all.length - 1);
    }
    await draw(id);
    if (isFirst) return;
    document.getElementById(id).parentElement.scrollLeft = 0;
    said.textContent = all[to].label;
  }

  function turn(id, by) {
    turning = turning.then(() => show_window(id, (at.get(id) ?? 0) + by));
  }

  function print(begins) {
    if (printing === begins) return;
    printing = begins;
    if (dark.matches) drawAll();
  }

  drawAll();
  for (const id of Object.keys(windows)) {
    turn(id, 0);
    const controls = document.getElementById(id + "-windows");
    controls?.querySelector(".before").addEventListener("click", () => turn(id, -1));
    controls?.querySelector(".after").addEventListener("click", () => turn(id, 1));
  }
  dark.addEventListener("change", drawAll);
  paper.addEventListener("change", (event) => print(event.matches));
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  function follow() {
    const mark = document.querySelector(".chart .at");
    if (mark) tell(mark);
    else tip.hidden = true;
  }
  window.addEventListener("scroll", follow, { passive: true });

  // Grids keep the size of their cells and scroll; all others are as wide as their box.
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const known = drawn.get(target.id);
      const width = Math.floor(target.clientWidth);
      if (known && charts[target.id]?.width === "container" && width && known.width !== width) draw(target.id);
    }
  });
  ids.forEach((id) => resized.observe(document.getElementById(id)));
})();
