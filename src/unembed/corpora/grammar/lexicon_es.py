"""The stems of the large Spanish grammar: six fields of life, each with people, moods, deeds and things.

Only what cannot be made by rule is listed; forms_es.py inflects it. A verb is written with the change of its stressed
vowel after a colon ("volver:ue"). Nouns of people and adjectives stand in the masculine singular, commonest first.
"""

# field: people; how they are; what they do; masculine things; feminine things
FIELDS = {
    "music": (
        "músico cantor compositor director violinista bailarín",
        "inspirado emocionado concentrado ronco entusiasmado",
        "tocar escuchar ensayar grabar estudiar",
        "himno concierto tango vals",
        "canción melodía sonata sinfonía",
    ),
    "kitchen": (
        "cocinero panadero camarero pastelero carnicero frutero",
        "hambriento satisfecho acalorado sediento lleno",
        "preparar probar:ue servir:i calentar:ie repartir",
        "pastel postre guiso caldo",
        "sopa tortilla salsa empanada",
    ),
    "school": (
        "maestro alumno profesor bibliotecario escritor lector",
        "atento distraído aburrido callado preparado",
        "leer escribir explicar corregir:i copiar",
        "cuento poema texto capítulo",
        "lección carta novela historia",
    ),
    "farm": (
        "granjero jardinero pastor campesino ganadero apicultor",
        "cansado tranquilo agotado bronceado embarrado",
        "plantar regar:ie cortar vender recoger",
        "tomate rosal melón girasol",
        "flor lechuga cebolla calabaza",
    ),
    "sea": (
        "marinero pescador capitán buceador nadador remero",
        "mojado mareado perdido asustado helado",
        "pintar reparar limpiar mover:ue cargar",
        "barco bote velero remo",
        "barca lancha vela canoa",
    ),
    "hospital": (
        "médico enfermero doctor cirujano farmacéutico veterinario",
        "preocupado enfermo nervioso aliviado sano",
        "pedir:i buscar llevar guardar entregar",
        "informe frasco jarabe vendaje",
        "receta pastilla vacuna venda",
    ),
}
TIMES = {"past": "ayer anoche anteayer", "present": "hoy ahora actualmente", "future": "mañana pronto luego"}
COPULAS = "volver:ue parecer:zc llegar"
RELATIVES = "trabajar descansar viajar dormir:ue esperar caminar correr cantar bailar llorar"
DEGREES = "muy bastante tan demasiado algo poco"
MANNERS = (
    "despacio rápidamente lentamente tranquilamente alegremente cuidadosamente pacientemente fácilmente "
    "silenciosamente perfectamente nuevamente torpemente hábilmente gustosamente"
)
