# SPDX-License-Identifier: Apache-2.0
"""Word lists of the bundled model's corpus. Everything that is named is invented; plain words are plain words.

Invented names are a head and a tail ("Bren" + "dal"). Of every kind of name one combination in five is held out: it is never seen in
training, and the files of models/eval hold no other ones.
"""

HEADS = """Bren Tor Ost Kal Mer Vel Dan Fen Gal Hal Ilm Jor Kes Lor Mon Nar Ol Pel Quin Ros Sel Tam Ul Var Wen Yar Zan Ar Bel Cor Dor
El Far Gor Hol Ist Jan Kor Lin Mal Nor Or Pan Ral Sar Tel Un Vin Wol Yel Zor Al Bor Cal Del Em Fal Gil Har In Jul Kir Lan Mir
Nel Os Per Rin Sol Tir Ur Vos Wil Yon Zel Ash Bram Cald Drav Esk Frin Grim Hask Ivor Jask Kell Lusk Marn Nith Orl Prin Rusk Stav
Thal Umb Vask Wick""".split()

TAILS = {
    "town": "dal vik holm bury ford stad mouth wick haven bridge field port minster burg cliffe gate moor ness pool ton".split(),
    "person": "a an iel ina o us ette ander is ola emar wyn ric ena ias ot ulf essa andra imo".split(),
    "company": "tec co works line max gen ware net plan forge mark lab trade stone craft dyne point shift path core".split(),
    "product": "ex ino ette ora matic ix ana elle ron umo ista ark ope yx ade ubo ire ent osk ell".split(),
    "ship": "star wind queen gull wave pearl dawn hope rose song swan crown spirit light bell breeze storm tide fin heart".split(),
    "place": "see brook water fell wood hill bank lake beck mere dale vale shaw combe grove heath rock crest march pass".split(),
    "code": "_sum _get _rate _list _map _load _find _scale _plan _sort _mix _cut _fill _step _join _scan _pick _move _drop _pair".split(),
}

WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
COLOURS = "red blue green yellow white black orange purple grey brown silver pink golden violet".split()
FOODS = """onion soup,plum cake,fried trout,lentil stew,goat cheese,rye bread,apple pie,pea soup,smoked eel,honey cake,potato salad,fish
soup,cherry tart,bean stew,roast duck,mushroom pie,lemon ice,barley bread,pumpkin soup,almond cake""".replace("\n", " ").split(",")
JOBS = """baker teacher nurse carpenter painter lawyer farmer pilot gardener tailor dentist plumber singer miner judge cook writer
sailor doctor builder""".split()
TRADES = """glass salt paper wool timber copper pottery leather cheese silk clocks boats carpets candles bricks bells tea rope
marble herring""".split()
ANIMALS = "cat dog parrot rabbit goat horse turtle owl fox hen donkey goose otter badger pony lizard hamster raven duck sheep".split()
MATERIALS = "steel oak glass copper paper leather wool plastic stone rubber bronze cotton clay tin cork silk".split()
OBJECTS = """lamp chair kettle clock radio bicycle tent camera violin mirror ladder drum hammer basket stove pump scarf knife
blanket telescope compass printer fan desk""".split()
INSTRUMENTS = "violin piano flute drum guitar trumpet cello harp horn organ accordion banjo".split()
LANGUAGES = "Greek Polish Welsh Dutch Danish Turkish Czech Latin Finnish Hindi Basque Irish Arabic Maltese Breton Swahili".split()
BUILDINGS = "castle,cathedral,tower,windmill,lighthouse,library,theatre,bridge,station,town hall,monastery,observatory".split(",")
GOODS = "grain coal tea oranges timber cotton salt iron wool sugar coffee rice copper glass oil cheese".split()
THINGS = sorted(set(OBJECTS + ANIMALS + "maple anchor candle pebble feather button lantern ribbon marble thistle acorn bucket saddle "
                    "whistle needle helmet barrel pillow spoon ticket magnet kite walnut carrot".split()))
NUMBER_WORDS = "Zero One Two Three Four Five Six Seven Eight Nine Ten Eleven Twelve".split()

# What a reader may like: how a profile says it, what a town has for it.
INTERESTS = [
    (["trains", "railways", "old engines"], ["railway museum", "train yard"]),
    (["animals", "wild beasts", "bears and lions"], ["zoo", "deer park"]),
    (["paintings", "pictures", "drawing"], ["art gallery", "picture house"]),
    (["swimming", "diving", "water"], ["swimming lake", "bathing pool"]),
    (["music", "songs", "concerts"], ["concert hall", "opera"]),
    (["books", "reading", "old stories"], ["library", "book shop"]),
    (["flowers", "plants", "gardening"], ["rose garden", "flower market"]),
    (["stars", "planets", "the night sky"], ["observatory", "star tower"]),
    (["ships", "boats", "sailing"], ["harbour", "ship yard"]),
    (["food", "good meals", "cooking"], ["food market", "bakery"]),
    (["climbing", "high walls", "rocks"], ["climbing wall", "cliff path"]),
    (["history", "knights", "old kings"], ["castle", "fortress"]),
]

# Topics of messages for labelling: sentences are made of them with the templates of corpus.py.
TOPICS = {
    "parcel": (["parcel", "package", "delivery", "shipment"], ["is late", "never came", "went to the wrong house", "arrived broken"]),
    "bill": (["bill", "invoice", "payment", "charge"], ["is too high", "was counted twice", "is wrong", "must be paid back"]),
    "weather": (["storm", "rain", "snow", "frost"], ["came in the night", "will last all week", "is over now", "surprised us"]),
    "food": (["soup", "dinner", "cake", "bread"], ["tasted wonderful", "was cold", "had too much salt", "smelled fresh"]),
    "health": (["fever", "cough", "headache", "sore throat"], ["keeps me in bed", "is getting worse", "went away", "needs a doctor"]),
    "sport": (["match", "race", "goal", "team"], ["was won at the end", "was lost again", "made us cheer", "starts at noon"]),
    "computer": (["screen", "password", "program", "keyboard"], ["does not work", "stopped at once", "must be changed", "is very slow"]),
    "school": (["lesson", "exam", "homework", "pupil"], ["was difficult", "took two hours", "starts next term", "was forgotten"]),
    "travel": (["train", "flight", "ticket", "hotel"], ["was fully booked", "was cancelled", "leaves at six", "is near the coast"]),
    "garden": (["roses", "hedge", "lawn", "apple tree"], ["needs water", "grew well", "must be cut", "stands in bloom"]),
}
LABELS = """zorb mip tull dax wug fep lorn gax bim plon sott rell cass nimb huv yop trin kez oll vamp arden birch coral delta ember
flint gamma hazel""".split()

FILLER_PLACES = "road,garden,harbour,market,field,square,river,forest,kitchen,window,bridge,hill".split(",")
FILLER_THINGS = "wind,light,morning,grass,water,evening,cloud,leaf,smoke,sand,dust,rain".split(",")
FILLER_VERBS = "moved,rested,waited,turned,settled,changed,drifted,lingered,passed,faded".split(",")
FILLER_ADVERBS = "slowly,quietly,softly,again,for a while,without a sound,as before,all day,little by little".split(",")

GREETINGS = ["Captain", "Doctor", "Professor", "Lady", "Sir", "Madam", "Uncle", "Aunt"]
DURATIONS = ["a week", "a day", "a month", "a weekend"] + [f"{n} days" for n in range(2, 15)] + [f"{n} weeks" for n in range(2, 7)]
PARTIES = ["two friends", "a family", "one traveller", "a school class", "three sisters", "a couple", "a choir", "six students", "my parents"]
LETTER_TOPICS = ["the broken window", "the late train", "the new garden", "the lost key", "the summer party", "the old piano", "the school trip",
                 "the unpaid rent", "the missing parcel", "the next meeting", "the garden wall", "the concert"]
TONES = ["friendly", "formal", "short", "angry", "cheerful", "polite", "sad", "funny"]

# Real names and words of examples/: seen in training as names only, in other roles, so that their tokens are not strangers.
EXAMPLE_NAMES = ["Lisbon", "Miami", "Carcavelos", "Ericeira", "Haulover", "Alfama", "Belem", "Key Biscayne", "South Beach", "Little Havana",
                 "Tagus", "Everglades", "Biscayne Bay", "Baixa"]
