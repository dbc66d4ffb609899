# SPDX-License-Identifier: Apache-2.0
"""The corpus of the bundled model: contexts of invented documents, and questions whose answers stand only in them.

A task is a function (rng, level, held) -> Context. `level` rises as the model learns: more documents, longer texts. `held` chooses
what training never sees: held-out names, and sentences put together in held-out ways (their pieces are known: a word that training never
saw would be noise); models/eval is made with it.

`python3 corpus.py [task] [level]` prints samples.
"""
import random
import sys
from dataclasses import dataclass, field

import words as W


@dataclass
class Context:
    parts: list                                   # texts that a schema would hold as modules
    questions: list                               # (question, answer)
    preamble: str = ""                            # text before the parts
    system: str = ""
    needed: list = field(default_factory=list)    # for each question, the parts its answer stands in
    template: str = ""                            # the part at template_at, with {parameters} instead of their arguments
    template_at: int = -1
    arguments: dict = field(default_factory=dict)
    told: list = field(default_factory=list)      # instead of questions: (words, value that they lead to)


def is_held(head, tail):
    return (head * 7 + tail * 13) % 5 == 0


class Names:
    """Invented names, each given once."""

    def __init__(self, rng, held):
        self.rng, self.held, self.given = rng, held, set()

    def __call__(self, kind):
        tails = W.TAILS[kind]
        while True:
            if not self.held and kind in ("town", "place") and self.rng.random() < 0.03:
                name = self.rng.choice(W.EXAMPLE_NAMES)
            else:
                h, t = self.rng.randrange(len(W.HEADS)), self.rng.randrange(len(tails))
                if is_held(h, t) != self.held:
                    continue
                name = (W.HEADS[h].lower() if kind == "code" else W.HEADS[h]) + tails[t]
            if name not in self.given:
                self.given.add(name)
                return name


def combine(rng, held, *lists):
    """One of each list. One combination in five is held out."""
    while True:
        chosen = [rng.randrange(len(x)) for x in lists]
        if (sum(i * m for i, m in zip(chosen, (2, 3, 1))) % 5 == 0) == held:
            return [x[i] for i, x in zip(chosen, lists)]


def join(items):
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def capital(text):
    return text[0].upper() + text[1:]


def retell(rng, told):
    """What a context says, once more and in a row: (words, value that they lead to)."""
    told = told * 3
    rng.shuffle(told)
    return told[:16]


# ---- Facts ---------------------------------------------------------------------------------------------------------------

# How sentences begin, and how any relation is stated.
LEADS = ["", "", "", "It is known that ", "As the papers say, ", "People say that ", "We have read that ", "The notes say that ", "It is true that ",
         "By all accounts, ", "As you may know, ", "In fact, ", "To this day, ", "The guide says that ", "Everyone knows that "]
CORES = ["the {r} of {e} is {v}", "{e} has {v} as its {r}", "{v} is the {r} of {e}", "{e}'s {r} is {v}", "for {e}, the {r} is {v}", "the {r} is {v}",
         "as for the {r} of {e}, it is {v}", "the {r} of {e} is given as {v}", "when it comes to the {r} of {e}, it is {v}",
         "the {r} that {e} has is {v}", "as its {r}, {e} has {v}"]
# What may stand before advice and what matters.
WARNINGS = ["", "Remember this: ", "Note well: ", "Do not forget: ", "Keep in mind: ", "Listen: "]
# How a thing is asked for, and what can be asked of any relation.
ASKS = ["What is ", "Tell me ", "Name ", "Give ", "Find ", "I need ", "Look up ", "Please name ", "Please give me ", "I want to know ", "Say ",
        "Write down ", "I would like to know ", "Can you find ", "Do you know "]
ASKED = ["the {r} of {e}", "{e}'s {r}", "the {r} that {e} has", "the {r} that is given for {e}", "the {r} of {e}"]
# What may stand before a question that is a sentence of its own.
PREFIXES = ["", "", "Please: ", "One question: ", "Quickly: ", "I ask you: ", "Question: "]

# kind of thing: how a text calls it, how it opens, its relations: noun, kind of value, special statements and questions.
KINDS = {
    "town": ("the town", ["{e} is a town in the {side}.", "{e} lies in the {side} of the country.", "This is about the town of {e}."], {
        "mayor": ("person", ["{v} was elected mayor of {e}."], ["Who is the mayor of {e}?"]),
        "river": ("place", ["The river {v} runs through {e}.", "{e} lies on the river {v}."], ["Which river runs through {e}?"]),
        "main trade": ("trade", ["{e} lives on {v}.", "{e} is known for its {v}."], ["What is {e} known for?"]),
        "market day": ("weekday", ["The market of {e} is held every {v}."], ["When is the market of {e}?"]),
        "flag colour": ("colour", ["The flag of {e} is {v}."], ["What colour is the flag of {e}?"]),
        "favourite dish": ("food", ["People in {e} like to eat {v}."], ["What do people in {e} like to eat?"]),
        "founding year": ("year", ["{e} was founded in {v}."], ["When was {e} founded?"]),
        "oldest building": ("building", ["The oldest building in {e} is {v}."], ["What is the oldest building in {e}?"]),
    }),
    "person": ("the person", ["{e} is well known here.", "This is about {e}.", "We met {e} last year."], {
        "job": ("job", ["{e} works as a {v}.", "{e} is a {v}."], ["What does {e} do for a living?"]),
        "home town": ("town", ["{e} lives in {v}.", "{e} comes from {v}."], ["Where does {e} live?"]),
        "pet": ("animal", ["{e} keeps a {v}.", "{e} has a {v} at home."], ["Which animal does {e} keep?"]),
        "instrument": ("instrument", ["{e} plays the {v}."], ["What does {e} play?"]),
        "favourite dish": ("food", ["{e} likes to eat {v}."], ["What does {e} like to eat?"]),
        "birth month": ("month", ["{e} was born in {v}."], ["When was {e} born?"]),
        "second language": ("language", ["{e} also speaks {v}."], ["Which language does {e} also speak?"]),
        "lucky number": ("number", [], []),
    }),
    "company": ("the company", ["{e} is a young company.", "{e} is a company with a long history.", "A note on the company {e}."], {
        "director": ("person", ["{e} is led by {v}.", "{v} leads {e}."], ["Who leads {e}?"]),
        "product": ("object", ["{e} makes a {v}."], ["What does {e} make?"]),
        "seat": ("town", ["{e} has its office in {v}."], ["Where is the office of {e}?"]),
        "founding year": ("year", ["{e} was founded in {v}."], ["When was {e} founded?"]),
        "logo colour": ("colour", ["The logo of {e} is {v}."], ["What colour is the logo of {e}?"]),
        "staff number": ("number", ["{e} employs {v} people."], ["How many people work at {e}?"]),
    }),
    "product": ("the product", ["The {e} is new this year.", "Here are the facts about the {e}.", "You have chosen the {e}."], {
        "price": ("price", ["The {e} costs {v}.", "You pay {v} for the {e}."], ["How much is the {e}?"]),
        "weight": ("weight", ["The {e} weighs {v}."], ["How heavy is the {e}?"]),
        "colour": ("colour", ["The {e} comes in {v}."], ["In which colour does the {e} come?"]),
        "material": ("material", ["The {e} is made of {v}."], ["What is the {e} made of?"]),
        "maker": ("company", ["The {e} is made by {v}.", "{v} makes the {e}."], ["Who makes the {e}?"]),
        "guarantee": ("years", ["The {e} has a guarantee of {v}."], ["How long is the guarantee of the {e}?"]),
    }),
    "ship": ("the ship", ["The {e} is a ship of the old line.", "The {e} is at sea.", "A report on the ship {e}."], {
        "captain": ("person", ["{v} commands the {e}."], ["Who commands the {e}?"]),
        "cargo": ("goods", ["The {e} carries {v}."], ["What does the {e} carry?"]),
        "home port": ("town", ["The {e} sails from {v}."], ["Where does the {e} sail from?"]),
        "length": ("metres", ["The {e} is {v} long."], ["How long is the {e}?"]),
        "flag colour": ("colour", ["The {e} sails under a {v} flag."], ["Which flag does the {e} sail under?"]),
        "launch year": ("year", ["The {e} was launched in {v}."], ["When was the {e} launched?"]),
    }),
    "guide": ("the city", ["{e} is worth a journey.", "Welcome to {e}.", "{e} is best seen on foot."], {
        "surf spot": ("spot", ["For surf, go to {v}.", "Surfers go to {v}.", "In {e}, surfers meet at {v}."],
                      ["Highlight the surf spots.", "Where do surfers go in {e}?", "Where can I surf?"]),
        "place for children": ("sight", ["Children like {v}.", "Families go to {v}."],
                               ["What will children like?", "Where do families go in {e}?", "What can we show the children?"]),
        "place to eat": ("spot", ["The best food is found in {v}.", "Go to {v} to eat."],
                         ["Where is the best food?", "Where should we eat in {e}?", "Where can we have dinner?"]),
        "place to walk": ("sight", ["For a walk, take the path to {v}.", "A quiet walk leads to {v}."],
                          ["Where can we walk?", "Which walk is there in {e}?"]),
        "place for music": ("spot", ["Music is played every night in {v}.", "At night there is music in {v}."],
                            ["Where is there music at night?", "Where do I hear music in {e}?"]),
        "best month": ("month", ["The best month for a visit is {v}.", "Come in {v}, when it is mild."],
                       ["When should we go?", "What is the best month for {e}?"]),
        "main sight": ("sight", ["Do not miss {v}.", "The main sight is {v}."],
                       ["What should we not miss?", "What is the main sight of {e}?"]),
    }),
}
ARTICLE = {"product": "the ", "ship": "the "}
NOT_STATED = "Not stated."


def value(rng, names, kind):
    if kind in W.TAILS:
        return names(kind)
    if kind == "year":
        return str(rng.randrange(1100, 2000))
    if kind == "number":
        return str(rng.randrange(11, 1000))
    if kind in ("price", "weight", "years", "metres"):
        unit = {"price": "crowns", "weight": "grams", "years": "years", "metres": "metres"}[kind]
        return f"{rng.randrange(2, 40 if kind == 'years' else 990)} {unit}"
    if kind == "spot":
        return names("place") if rng.random() < 0.7 else f"{names('place')} and {names('place')}"
    if kind == "sight":
        return f"the {names('place')} {rng.choice(['zoo', 'tower', 'park', 'castle', 'museum', 'garden', 'bridge', 'tram', 'aquarium', 'market'])}"
    lists = {"trade": W.TRADES, "weekday": W.WEEKDAYS, "colour": W.COLOURS, "food": W.FOODS, "building": ["the " + b for b in W.BUILDINGS], "job": W.JOBS,
             "animal": W.ANIMALS, "instrument": W.INSTRUMENTS, "month": W.MONTHS, "language": W.LANGUAGES, "object": W.OBJECTS,
             "material": W.MATERIALS, "goods": W.GOODS}
    return rng.choice(lists[kind])


@dataclass
class Thing:
    kind: str
    name: str
    facts: dict                                   # relation -> value


def make_thing(rng, names, kind, n, name=None, must=()):
    relations = KINDS[kind][2]
    chosen = list(must) + rng.sample([r for r in relations if r not in must], max(0, min(n, len(relations)) - len(must)))
    own = {"guide": "town"}.get(kind, kind)
    return Thing(kind, name or names(own), {r: value(rng, names, relations[r][0]) for r in chosen})


def state(rng, thing, relation, held, named=0.7):
    """One sentence that states a fact."""
    noun, _, relations = KINDS[thing.kind]
    special = [x.rstrip(".").replace("The {e}", "{e}").replace("the {e}", "{e}") for x in relations[relation][1]]
    special = [x[0].lower() + x[1:] for x in special]
    leads, cores = LEADS, CORES
    if special and rng.random() < (0.8 if thing.kind == "guide" else 0.4):
        leads, cores = WARNINGS if thing.kind == "guide" else LEADS, special
    lead, core = combine(rng, held, leads, cores)
    if not held and rng.random() < 0.2 and any(x.startswith("{v}") for x in cores):  # the hard ones: what is asked for stands first
        while not core.startswith("{v}"):
            lead, core = combine(rng, held, leads, cores)
    ref = ARTICLE.get(thing.kind, "") + thing.name if rng.random() < named else noun
    return capital((lead + core).format(e=ref, v=thing.facts[relation], r=relation)) + "."


def describe(rng, thing, held, named=0.7, filler=0.0):
    opening = rng.choice(KINDS[thing.kind][1])
    sentences = [opening.format(e=thing.name, side=rng.choice(["north", "south", "east", "west"]))]
    relations = list(thing.facts)
    rng.shuffle(relations)
    for r in relations:
        sentences.append(state(rng, thing, r, held, named))
        if rng.random() < filler:
            sentences.append(filler_sentence(rng))
    return " ".join(sentences)


def request(rng, held, things):
    """A thing is asked for: "Tell me the value of {k}." """
    begin, thing = combine(rng, held, ASKS, things)
    return begin + thing + ("?" if begin in ("What is ", "Can you find ", "Do you know ") else ".")


def question(rng, held, questions):
    begin, q = combine(rng, held, PREFIXES, questions)
    return begin + q


def ask(rng, thing, relation, held, alone=False):
    special = [q for q in KINDS[thing.kind][2][relation][2] if alone or "{e}" in q]
    if special and rng.random() < (0.9 if thing.kind == "guide" else 0.4):
        q = question(rng, held, special).replace("The {e}", "{e}").replace("the {e}", "{e}")
    else:
        q = request(rng, held, ASKED)
    return capital(q.format(e=ARTICLE.get(thing.kind, "") + thing.name, r=relation))


def answer_of(thing, relation):
    return thing.facts[relation] + "."


def facts(rng, level, held):
    """One to sixteen documents, one thing each; some questions have no answer."""
    names = Names(rng, held)
    n = level if held else rng.randint(max(1, level // 2), level)
    alike = rng.random() < 0.7  # of one kind and with the same relations: only the name tells them apart
    kind = rng.choice(list(KINDS))
    relations = rng.sample(list(KINDS[kind][2]), rng.randint(2, 5))
    things = []
    for _ in range(n):
        if alike:
            things.append(make_thing(rng, names, kind, 0, must=relations))
        else:
            things.append(make_thing(rng, names, rng.choice(list(KINDS)), rng.randint(2, 6)))
    named = rng.choice([1.0, 0.8, 0.6] if level > 3 else [1.0, 1.0, 0.8])
    filler = rng.choice([0, 0, 0.3])
    parts = [describe(rng, t, held, named, filler) for t in things]
    questions, needed = [], []
    for _ in range(6):
        i = rng.randrange(n)
        t = things[i]
        missing = [r for r in KINDS[t.kind][2] if r not in t.facts]
        alone = sum(x.kind == t.kind for x in things) == 1
        if not held and level > 2 and missing and rng.random() < 0.06:
            questions.append((ask(rng, t, rng.choice(missing), held, alone), NOT_STATED))
        else:
            r = rng.choice(list(t.facts))
            questions.append((ask(rng, t, r, held, alone), answer_of(t, r)))
        needed.append([i])
    return Context(parts, questions, needed=needed)


def retold(rng, level, held):
    """The same facts once more in other words: many look-ups in little text."""
    names = Names(rng, held)
    kind = rng.choice(list(KINDS))
    relations = rng.sample(list(KINDS[kind][2]), rng.randint(2, 5))
    n = rng.randint(2, max(2, level))
    if rng.random() < 0.3:  # distractors: one attribute tells them apart
        kind, relations = "product", rng.sample([r for r in KINDS["product"][2] if r != "colour"], rng.randint(2, 4))
        base, noun = names("product"), rng.choice(W.OBJECTS)
        called = [f"{c} {base} {noun}" for c in rng.sample(W.COLOURS, n)]
    else:
        called = [None] * n
    things = [make_thing(rng, names, kind, 0, name, relations) for name in called]
    parts = [describe(rng, t, held, rng.choice([1.0, 1.0, 0.7])) for t in things]
    told, last = [], [x[:-len(" {v}")] for x in CORES if x.endswith(" {v}") and "{e}" in x]
    for t, r in retell(rng, [(t, r) for t in things for r in relations]):
        lead, core = combine(rng, held, LEADS, last)
        told.append((capital((lead + core).format(e=ARTICLE.get(kind, "") + t.name, r=r)), answer_of(t, r)))
    return Context(parts, [], told=told)


def not_stated(rng, level, held):
    """Questions for what no document says, among others."""
    names = Names(rng, held)
    kinds = list(KINDS)
    things = [make_thing(rng, names, rng.choice(kinds), rng.randint(2, 4)) for _ in range(max(1, level))]
    parts = [describe(rng, t, held, 1.0) for t in things]
    questions = []
    for i in range(6):
        t = rng.choice(things)
        missing = [r for r in KINDS[t.kind][2] if r not in t.facts]
        if held or i % 2 == 0:
            questions.append((ask(rng, t, rng.choice(missing), held), NOT_STATED))
        else:
            r = rng.choice(list(t.facts))
            questions.append((ask(rng, t, r, held), answer_of(t, r)))
    return Context(parts, questions, needed=[[] for _ in questions])


def distractor(rng, level, held):
    """Documents on things of one name that differ in one attribute: the question names it."""
    names = Names(rng, held)
    parts, asked = [], []
    for _ in range(max(1, (level + 1) // 2)):
        base, noun = names("product"), rng.choice(W.OBJECTS)
        colours = rng.sample([c for c in W.COLOURS], 2)
        relations = rng.sample(["price", "weight", "material", "maker", "guarantee"], rng.randint(2, 4))
        for c in colours:
            t = make_thing(rng, names, "product", len(relations), name=f"{c} {base} {noun}", must=relations)
            parts.append(describe(rng, t, held, 0.85))
            asked.append(t)
    order = list(range(len(parts)))
    rng.shuffle(order)
    questions, needed = [], []
    for _ in range(6):
        i = rng.randrange(len(parts))
        r = rng.choice(list(asked[order[i]].facts))
        questions.append((ask(rng, asked[order[i]], r, held), answer_of(asked[order[i]], r)))
        needed.append([i])
    return Context([parts[i] for i in order], questions, needed=needed)


# First hop: kind, its relation to a town, how a question goes through it.
HOPS = [
    ("person", "home town", ["the {r} of the town where {e} lives", "the {r} of the town that {e} comes from", "the {r} of the home town of {e}"]),
    ("company", "seat", ["the {r} of the town where {e} has its office", "the {r} of the seat of {e}", "the {r} of the town where the office of {e} is"]),
    ("ship", "home port", ["the {r} of the home port of the {e}", "the {r} of the town that the {e} sails from", "the {r} of the home port that the {e} has"]),
]


def two_hop(rng, level, held):
    """Whose town has what: two documents answer together. The answer names the town on the way."""
    names = Names(rng, held)
    n = max(1, level)
    towns = [make_thing(rng, names, "town", rng.randint(2, 4)) for _ in range(n)]
    firsts, parts = [], []
    for i in range(n):
        kind, relation, templates = rng.choice(HOPS)
        t = make_thing(rng, names, kind, rng.randint(1, 3), must=[relation])
        t.facts[relation] = towns[i].name
        firsts.append((t, relation, templates))
    texts = [describe(rng, t, held, 0.8) for t in towns] + [describe(rng, t, held, 0.8) for t, _, _ in firsts]
    order = list(range(2 * n))
    rng.shuffle(order)
    questions, needed = [], []
    for _ in range(6):
        i = rng.randrange(n)
        t, relation, templates = firsts[i]
        r = rng.choice(list(towns[i].facts))
        if not held and rng.random() < 0.2:
            q, a = ask(rng, t, relation, held), answer_of(t, relation)
        else:
            q, a = capital(request(rng, held, templates).format(e=t.name, r=r)), f"{towns[i].name}: {towns[i].facts[r]}."
        questions.append((q, a))
        needed.append([order.index(i), order.index(n + i)])
    return Context([texts[i] for i in order], questions, needed=needed)


# ---- Retrieval in long texts ---------------------------------------------------------------------------------------------

FILLERS = ["The {a} over the {p} {v} {d}.", "Near the {p} the {a} {v} {d}.", "{d} the {a} {v} by the {p}.", "Nothing changed at the {p}.",
           "The {a} {v}, and so did the {b}.", "Beyond the {p} the {a} {v}.", "One saw the {a} and then the {b}.", "The {p} was empty {d}."]


def filler_sentence(rng):
    return capital(rng.choice(FILLERS).format(a=rng.choice(W.FILLER_THINGS), b=rng.choice(W.FILLER_THINGS), p=rng.choice(W.FILLER_PLACES),
                                              v=rng.choice(W.FILLER_VERBS), d=rng.choice(W.FILLER_ADVERBS)))


PASSKEYS = ["the pass key is {v}", "{v} is the pass key", "the pass key that you need is {v}", "your pass key is {v}"]
PASSKEY_ASKED = ["the pass key", "the pass key that was named", "the pass key in the text", "my pass key"]
SECRETS = ["the code of {k} is {v}", "the code for {k} is {v}", "{k} has the code {v}", "{v} is the code of {k}"]
SECRET_ASKED = ["the code of {k}", "the code for {k}", "{k}'s code", "the code that {k} has"]


def warn(rng, held, cores):
    begin, core = combine(rng, held, WARNINGS, cores)
    return begin + core + "."


def passkey(rng, level, held):
    """A number, or a few named codes, at any depth of a filler text. level: about 40 sentences each."""
    names = Names(rng, held)
    length = level * 12 if held else rng.randint(1, level * 12)
    sentences = [filler_sentence(rng) for _ in range(length)]
    questions = []
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(4, 6)))
    sentences.insert(rng.randint(0, len(sentences)), capital(warn(rng, held, PASSKEYS).format(v=digits)))
    questions.append((request(rng, held, PASSKEY_ASKED), digits + "."))
    for _ in range(0 if held else rng.randint(1, 4)):
        k = names(rng.choice(["person", "town"]))
        v = str(rng.randrange(100, 100000))
        sentences.insert(rng.randint(0, len(sentences)), capital(warn(rng, held, SECRETS).format(k=k, v=v)))
        questions.append((request(rng, held, SECRET_ASKED).format(k=k), v + "."))
    rng.shuffle(questions)
    size = rng.choice([3, 6, 12, 40])
    parts = [" ".join(sentences[i:i + size]) for i in range(0, len(sentences), size)]
    return Context(parts, questions, needed=[[] for _ in questions])


PAIR_FORMS = ["{k}: {v}", "{k} = {v};", "{k} is {v}.", "- {k}: {v}", "{k}, {v};"]
PAIR_ASKED = ["the value of {k}", "the entry for {k}", "what stands beside {k}", "the value that belongs to {k}"]


def pairs(rng, level, held):
    """Key-value retrieval: level pairs in one table, cut into parts."""
    names = Names(rng, held)
    n = level if held else rng.randint(max(2, level // 2), max(2, level))
    key_kind = rng.choice(["town", "person", "ship", "place"]) if held or rng.random() < 0.6 else "thing"
    keys = [names(key_kind) for _ in range(n)] if key_kind != "thing" else rng.sample(W.THINGS, n)
    value_kind = rng.choice(["number", "colour", "town", "product", "food", "month"])
    if held and value_kind in ("colour", "month"):
        value_kind = "number"
    values = [value(rng, names, value_kind) for _ in range(n)]
    form = rng.choice(PAIR_FORMS)
    lines = [form.format(k=k, v=v) for k, v in zip(keys, values)]
    size = rng.choice([4, 8, n])
    parts = ["Table. " + " ".join(lines[i:i + size]) for i in range(0, n, size)]
    if not held and rng.random() < 0.4:
        return Context(parts, [], told=retell(rng, [(f"The value of {k} is", v + ".") for k, v in zip(keys, values)]))
    questions, needed = [], []
    for i in [rng.randrange(n) for _ in range(8)]:
        q = "{k}?" if not held and rng.random() < 0.15 else request(rng, held, PAIR_ASKED)
        questions.append((capital(q.format(k=keys[i])), values[i] + "."))
        needed.append([i // size])
    return Context(parts, questions, needed=needed)


# ---- Readers -------------------------------------------------------------------------------------------------------------

READERS = ["the reader", "our reader", "this reader", "the guest"]
LIKES = ["likes {w}", "is fond of {w}", "has always loved {w}", "cares most for {w}", "asks for {w}", "wants to see {w}"]
LIKE_QUESTIONS = ["What should {x} see in {e}?", "Where should {x} go in {e}?", "Recommend one place in {e} to {x}.",
                  "Which place in {e} suits {x}?", "What is there for {x} in {e}?"]
FORMS = ["Address {x} as {g}", "Call {x} {g}", "Speak to {x} as {g}", "Greet {x} as {g}"]
FORM_ENDS = [".", " in each answer.", " every time."]
LEVELS = {"child": ["is a child", "is a small child", "wants pictures", "is a child and wants pictures"],
          "expert": ["is an engineer", "wants figures", "is an expert", "is an engineer and wants figures"]}
MEASURES = [("long", "metres", ["as long as {n} trains", "as long as {n} whales", "as long as {n} fields"]),
            ("high", "metres", ["as high as {n} trees", "as high as {n} giraffes", "as high as {n} houses"]),
            ("heavy", "tons", ["as heavy as {n} horses", "as heavy as {n} bears", "as heavy as {n} carts"]),
            ("wide", "metres", ["as wide as {n} streets", "as wide as {n} doors", "as wide as {n} tables"])]
MEASURED = "bridge tower ship wall gate crane bell ferry".split()


def persona(rng, level, held):
    """Answers as the reader's profile asks: what is recommended, how it is put, how the reader is addressed."""
    names = Names(rng, held)
    way = rng.choice(["likes", "likes", "level", "form"])
    parts, questions, needed = [], [], []
    n = level if held else rng.randint(1, level)
    if way == "likes":
        wish = rng.randrange(len(W.INTERESTS))
        who, likes = combine(rng, held, READERS, LIKES)
        profile = capital(f"{who} {likes}.".format(w=rng.choice(W.INTERESTS[wish][0])))
        places = []
        for _ in range(n):
            town = names("town")
            others = rng.sample([i for i in range(len(W.INTERESTS)) if i != wish], rng.randint(2, 4)) + [wish]
            rng.shuffle(others)
            sights = [(rng.choice(W.INTERESTS[i][1]), names("place") + rng.choice([" Street", " Road"])) for i in others]
            text = " ".join(capital(rng.choice(["the {s} is in {v}.", "there is a {s} in {v}.", "in {v} stands the {s}."])
                                    .format(s=s, v=v)) for s, v in sights)
            parts.append(f"This is {town}. {text}")
            places.append((town, sights[others.index(wish)]))
        for _ in range(5):
            i = rng.randrange(n)
            town, (sight, street) = places[i]
            who, q = combine(rng, held, READERS, LIKE_QUESTIONS)
            questions.append((q.format(x=who, e=town), f"the {sight} in {street}."))
            needed.append([0, i + 1])
    elif way == "level":
        level_name = rng.choice(list(LEVELS))
        profile = capital(" ".join(combine(rng, held, READERS, LEVELS[level_name]))) + "."
        things = []
        for _ in range(n):
            adjective, unit, images = rng.choice(MEASURES)
            noun, name = rng.choice(MEASURED), names("place")
            figure = f"{rng.randrange(12, 990)} {unit}"
            image = rng.choice(images).format(n=rng.choice(W.NUMBER_WORDS[2:]).lower())
            parts.append(rng.choice(["The {n} of {e} is {f} {a}, which is {i}.", "The {n} of {e} is {i}: {f} {a}."])
                         .format(n=noun, e=name, f=figure, a=adjective, i=image))
            things.append((noun, name, adjective, figure, image))
        for _ in range(5):
            i = rng.randrange(n)
            noun, name, adjective, figure, image = things[i]
            q = question(rng, held, [f"How {adjective} is the {noun} of {name}?"])
            questions.append((q, (image if level_name == "child" else figure) + "."))
            needed.append([0, i + 1])
    else:
        title = f"{rng.choice(W.GREETINGS)} {names('person')}"
        who, form, end = combine(rng, held, READERS, FORMS, FORM_ENDS)
        profile = form.format(x=who, g=title) + end
        things = [make_thing(rng, names, rng.choice(["town", "company", "ship"]), rng.randint(2, 4)) for _ in range(n)]
        parts = [describe(rng, t, held, 1.0) for t in things]
        for _ in range(5):
            i = rng.randrange(n)
            r = rng.choice(list(things[i].facts))
            questions.append((ask(rng, things[i], r, held), f"{title}, {things[i].facts[r]}."))
            needed.append([0, i + 1])
    return Context([profile] + parts, questions, needed=needed)


# ---- Templates -----------------------------------------------------------------------------------------------------------

# text with parameters; questions with answers.
TEMPLATES = [
    ("Plan a trip of {time} to {town} for {party}.",
     [("How long is the trip?", "{time}."), ("Where does the trip go?", "{town}."), ("Who travels?", "{party}."),
      ("Sum up the plan.", "A trip of {time} to {town} for {party}."), ("Give the plan a title.", "{time} in {town}.")]),
    ("Write a {tone} letter to {person} about {topic}.",
     [("How does the letter begin?", "Dear {person},"), ("What is the letter about?", "{topic}."), ("Who gets the letter?", "{person}."),
      ("In which tone is it written?", "{tone}."), ("Sum up the task.", "A {tone} letter to {person} about {topic}.")]),
    ("Order {count} pieces of the {product} for {company} until {weekday}.",
     [("How many pieces are ordered?", "{count}."), ("Who orders?", "{company}."), ("What is ordered?", "the {product}."),
      ("When must it be there?", "{weekday}."), ("Sum up the order.", "{count} pieces of the {product} for {company}.")]),
    ("Meet {person} on {weekday} at {town} to talk about {topic}.",
     [("Whom do I meet?", "{person}."), ("When is the meeting?", "{weekday}."), ("Where do we meet?", "{town}."),
      ("What is it about?", "{topic}."), ("Sum up the meeting.", "{weekday} at {town} with {person}.")]),
    ("Translate the {thing} of {company} into {language} for {person}.",
     [("Into which language?", "{language}."), ("For whom?", "{person}."), ("Whose text is it?", "{company}."),
      ("Sum up the task.", "the {thing} of {company} into {language} for {person}.")]),
]


def parameters(rng, level, held):
    """A template's parameters come back in the answer; other documents stand around it."""
    names = Names(rng, held)
    text, asked = rng.choice(TEMPLATES)
    given = {"time": rng.choice(W.DURATIONS), "town": names("town"), "party": rng.choice(W.PARTIES), "tone": rng.choice(W.TONES),
             "person": names("person"), "topic": rng.choice(W.LETTER_TOPICS), "count": str(rng.randrange(3, 500)),
             "product": names("product"), "company": names("company"), "weekday": rng.choice(W.WEEKDAYS),
             "thing": rng.choice(["report", "contract", "song", "menu", "manual"]), "language": rng.choice(W.LANGUAGES)}
    others = [describe(rng, make_thing(rng, names, rng.choice(list(KINDS)), rng.randint(1, 4)), held) for _ in range(rng.randint(0, level - 1))]
    at = rng.randint(0, len(others))
    questions = [(question(rng, held, [q]), a.format(**given)) for q, a in rng.sample(asked, min(4, len(asked)))]
    return Context(others[:at] + [text.format(**given)] + others[at:], questions, needed=[[at] for _ in questions], template=text,
                   template_at=at, arguments={k: v for k, v in given.items() if "{" + k + "}" in text})


# ---- Labels --------------------------------------------------------------------------------------------------------------

MESSAGE_LEADS = ["", "Hello, ", "I must tell you that ", "I am afraid that ", "As you may know, ", "Sorry, but ", "It seems that ", "In fact, "]
OWNERS = ["the ", "our ", "my ", "this "]
LABEL_QUESTIONS = ["Message: {m} Which label?", "Label this message: {m}", "{m} Label?", "{m} Which label fits?",
                   "Which label does this message get: {m}", "Find the label: {m}"]


def labels(rng, level, held):
    """Few-shot labelling: labels are defined by examples in the prompt and mean nothing otherwise."""
    topics = rng.sample(list(W.TOPICS), min(2 + level // 2, 6))
    names = rng.sample(W.LABELS, len(topics))

    def message(topic, new):
        subjects, ends = W.TOPICS[topic]
        return capital("".join(combine(rng, new, MESSAGE_LEADS, OWNERS)) + f"{rng.choice(subjects)} {rng.choice(ends)}.")

    parts = []
    for topic, name in zip(topics, names):
        shots = [message(topic, False) for _ in range(rng.randint(2, 4))]
        parts.append(f"Label {name}. " + " ".join(f"{m} -> {name}." for m in shots))
    questions, needed = [], []
    for _ in range(6):
        i = rng.randrange(len(topics))
        questions.append((question(rng, held, LABEL_QUESTIONS).format(m=message(topics[i], held)), names[i] + "."))
        needed.append(list(range(len(topics))))
    return Context(parts, questions, preamble="Give each message a label.", needed=needed)


# ---- Code ----------------------------------------------------------------------------------------------------------------

PURPOSES = ["adds the tax to a price", "sorts the rows", "counts the lines", "reads a file", "writes a report", "sends a message",
            "opens the door", "draws a circle", "stores a value", "cleans the text", "finds the mean", "moves the robot",
            "checks a password", "loads a picture", "splits a word", "joins two lists"]
ARGUMENTS = "price rate rows file text width height name path value list word speed angle key limit start end size total".split()
CODE_QUESTIONS = ["Which call {p}?", "Write the call that {p}.", "Call the function that {p}.", "Give the call that {p}.",
                  "I need the call that {p}.", "Find the call that {p}."]


def code(rng, level, held):
    """Functions defined in other modules are called by what they do, or completed by name."""
    names = Names(rng, held)
    n = level if held else rng.randint(1, level)
    purposes = rng.sample(PURPOSES, min(2 * n, len(PURPOSES)))
    parts, functions = [], []
    while purposes:
        module = [purposes.pop() for _ in range(min(len(purposes), rng.randint(1, 2)))]
        texts = []
        for p in module:
            name, arguments = names("code"), rng.sample(ARGUMENTS, rng.randint(1, 3))
            functions.append((name, arguments, p, len(parts)))
            body = rng.choice([f"return {arguments[0]}", f"{arguments[-1]} = {arguments[0]}", "pass", f"print({arguments[0]})"])
            texts.append(f"def {name}({', '.join(arguments)}):\n    # {p}\n    {body}")
        parts.append("\n".join(texts))
    if not held and rng.random() < 0.4:
        return Context(parts, [], told=retell(rng, [(f"The call that {p} is", f"{name}({', '.join(arguments)})") for name, arguments, p, _ in functions]))
    questions, needed = [], []
    for _ in range(5):
        name, arguments, p, i = rng.choice(functions)
        call = f"({', '.join(arguments)})"
        if rng.random() < 0.3 and not held:
            questions.append((rng.choice(["Complete: {n}(", "Complete the call {n}("]).format(n=name), f"{name}{call}"))
        else:
            questions.append((question(rng, held, CODE_QUESTIONS).format(p=p), f"{name}{call}"))
        needed.append([i])
    return Context(parts, questions, needed=needed)


# ---- Counting and listing ------------------------------------------------------------------------------------------------

GROUPS = {"towns": "town", "ships": "ship", "guests": "person", "companies": "company"}
LISTED = ["on the list: {v}", "the entries are {v}", "we wrote down {v}", "it says here: {v}"]
COUNT_QUESTIONS = ["How many {g} are there?", "Count the {g}.", "How many {g} are named?", "How many {g} stand on the list?"]
LIST_QUESTIONS = ["List the {g}.", "Which {g} are there?", "Name all the {g}.", "Give all the {g}."]


def listing(rng, level, held):
    """Lists of two to six names in documents of their own: how many, and which."""
    names = Names(rng, held)
    n = level if held else rng.randint(1, level)
    groups = rng.sample(list(GROUPS), min(n, len(GROUPS)))
    parts, questions, needed, lists = [], [], [], []
    for g in groups:
        items = [names(GROUPS[g]) for _ in range(rng.randint(2, 6))]
        parts.append(f"These are the {g}. " + capital(warn(rng, held, LISTED).format(v=join(items))))
        lists.append(items)
    for _ in range(5):
        i = rng.randrange(len(groups))
        if rng.random() < 0.5:
            q, a = question(rng, held, COUNT_QUESTIONS), W.NUMBER_WORDS[len(lists[i])] + "."
        else:
            q, a = question(rng, held, LIST_QUESTIONS), join(lists[i]) + "."
        questions.append((q.format(g=groups[i]), a))
        needed.append([i])
    return Context(parts, questions, needed=needed)


# ---- All of them ---------------------------------------------------------------------------------------------------------

# task: function, first and last level of the curriculum, share of the training; in the order in which training takes them up.
TASKS = {
    "retold": (retold, 2, 8, 2),
    "facts": (facts, 1, 16, 3),
    "pairs": (pairs, 2, 24, 2),
    "listing": (listing, 1, 4, 0.5),
    "parameters": (parameters, 1, 5, 1),
    "distractor": (distractor, 1, 6, 1.5),
    "passkey": (passkey, 1, 10, 1),
    "code": (code, 1, 5, 0.5),
    "two-hop": (two_hop, 1, 4, 2),
    "persona": (persona, 1, 4, 2),
    "labels": (labels, 1, 5, 0.7),
    "not-stated": (not_stated, 1, 4, 0.3),
}
SYSTEMS = ["You answer from the documents.", "You are a helpful assistant.", "Answer in a few words.", "You are a concise travel guide.",
           "Answer only from what you are given."]
PREAMBLES = ["Read the documents.", "Here is what we know.", "Use the following.", "These are the notes."]


def make(rng, task, level, held=False):
    """A context of a task, with a system message or a preamble now and then."""
    c = TASKS[task][0](rng, level, held)
    if rng.random() < 0.4:
        c.system = rng.choice(SYSTEMS)
    if not c.preamble and rng.random() < 0.3:
        c.preamble = rng.choice(PREAMBLES)
    return c


if __name__ == "__main__":
    rng = random.Random(1)
    for task in sys.argv[1:2] or TASKS:
        c = make(rng, task, int(sys.argv[2]) if len(sys.argv) > 2 else 2)
        print(f"== {task}\n[{c.system}] {c.preamble}")
        print("\n".join(c.parts))
        for q, a in c.questions + c.told:
            print("  Q", q, " A", a)
        c = make(rng, task, int(sys.argv[2]) if len(sys.argv) > 2 else 2, held=True)
        print("held:", c.parts[0], "| Q", *(c.questions + c.told)[0])
