"""The stems of the large English grammar: six fields of life, each with people, moods, deeds and things.

Only what cannot be made by rule is listed, commonest first; forms_en.py inflects it.
"""

# field: people; how they are; what they do; things
FIELDS = {
    "music": (
        "singer drummer pianist composer violinist guitarist conductor dancer flutist cellist trumpeter organist "
        "fiddler harpist soloist bassist",
        "famous musical talented lively cheerful nervous gifted graceful hoarse proud noisy inspired charming admired",
        "play hear record rehearse practise compose hum perform learn study sing enjoy whistle arrange",
        "song tune melody waltz ballad hymn sonata march anthem lullaby tango carol chorus rhythm opera symphony duet "
        "concerto",
    ),
    "kitchen": (
        "cook baker chef waiter butcher brewer grocer miller host caterer taster barista guest diner steward confectioner",
        "hungry thirsty full busy greedy generous picky hospitable plump satisfied sweaty starving hasty tidy",
        "prepare taste serve eat order warm cool burn share bring season finish smell spill",
        "soup cake pie pancake potato sausage steak omelette pudding stew dumpling muffin waffle noodle tart sandwich "
        "pizza salad",
    ),
    "school": (
        "teacher student pupil author poet professor librarian scholar tutor reader writer historian linguist translator "
        "editor journalist",
        "clever curious attentive bored wise lazy diligent forgetful studious thoughtful witty literate eloquent absent",
        "read write explain copy discuss print publish translate quote review edit memorize criticize recite",
        "book letter poem story essay novel article fable lesson chapter diary report speech riddle proverb legend "
        "textbook biography",
    ),
    "farm": (
        "farmer gardener shepherd rancher beekeeper florist forester villager grower harvester woodcutter planter "
        "herder landowner farmhand peasant",
        "muddy sunburnt strong weary sturdy dusty healthy humble rustic tanned robust weathered patient calm",
        "plant water grow pick harvest trim gather prune protect cover inspect sell uproot fertilize",
        "rose tulip apple pear bush cabbage vine bean cucumber sunflower cherry plum herb turnip daisy lily tomato melon",
    ),
    "sea": (
        "sailor captain swimmer diver pirate rower surfer lifeguard skipper helmsman navigator boatman islander voyager "
        "castaway explorer",
        "wet seasick brave lost frightened salty cold stranded shivering adventurous barefoot drenched daring fearless",
        "steer board anchor paint repair launch sink follow chase load spot abandon rescue tow",
        "ship boat canoe raft ferry yacht barge kayak vessel dinghy steamer galleon schooner sailboat tanker tugboat "
        "gondola trawler",
    ),
    "workshop": (
        "builder carpenter mason painter plumber engineer architect mechanic tailor potter blacksmith weaver electrician "
        "cobbler welder inventor",
        "skilled careful handy exact clumsy creative precise reliable punctual practical inventive stubborn thrifty "
        "hardworking",
        "build fix measure design polish hold lift move varnish carve assemble decorate carry clean",
        "table chair door shelf cupboard ladder bench fence frame gate window cradle desk stool drawer crate staircase "
        "bookcase",
    ),
}
TIMES = {"past": "yesterday recently once", "present": "today now usually", "future": "tomorrow soon later"}
REFLEXIVE_VERBS = "see help wash trust admire blame hurt describe introduce defend"
RELATIVES = "work wait smile sleep laugh rest listen talk walk run dream travel"
PREPOSITIONS = "with near behind beside without"
DEGREES = "very quite rather really so too"
MANNERS = (
    "slowly quickly carefully quietly happily again gladly calmly gently proudly patiently silently eagerly secretly "
    "suddenly nicely perfectly politely bravely kindly softly neatly boldly alone"
)
