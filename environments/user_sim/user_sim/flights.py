"""The flight desk: its database, its tools, its policy, and what travellers want of it."""

from __future__ import annotations

import json
import random
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from user_sim.task import Domain, Refused, Task, action, date_output, money, number_output

TODAY = date(2030, 5, 20)
FREE_BAGS = {"basic": 0, "standard": 1, "flex": 2}
BAG_PRICE = Decimal("35.50")
POLICY = f"""\
You serve travellers at the desk of an airline. Today is {TODAY.isoformat()}.
- Speak of a booking only with someone who gives its code. Prices are for one passenger.
- New bookings: take the cheapest flight that fits what the traveller asks for, unless another one is asked for. The
  fare is standard.
- Cancelling: a flex fare at any time, any other only on the day of booking or the day after it. The refund is the whole
  price, for all passengers.
- Changing the flight: not for a basic fare. The new flight has the same two towns. The difference in price, for all
  passengers, is charged or refunded.
- Bags: for each passenger a basic fare has none free, a standard fare one, a flex fare two; every other bag costs
  {BAG_PRICE}. Bags can be added, not taken away.
- What the policy does not allow is refused, and the traveller is told why.
- Do not invent anything: everything you tell comes from the tools or from this policy."""

NAMES = ("Lena Frost", "Hugo Marsh", "Nora Stein", "Emil Ford", "Vera Holm", "Paul Reed")
TOWNS = ("Oslo", "Lisbon", "Vienna", "Dublin", "Riga")

Database = dict[str, Any]


def find_booking(code: str, db: Database) -> str:
    """Shows a booking: names, flight, fare, price for one passenger, bags, and when it was made.

    Args:
        code: code of the booking, six letters and digits
    """
    return json.dumps({"code": code.strip().upper(), **_booking(db, code)})


def search_flights(origin: str, destination: str, day: str, db: Database) -> str:
    """Lists the flights of a day between two towns, with times and prices.

    Args:
        origin: town of departure
        destination: town of arrival
        day: as YYYY-MM-DD
    """
    wanted = (origin.strip().title(), destination.strip().title(), day.strip())
    found = [
        {"flight": number, **flight}
        for number, flight in db["flights"].items()
        if (flight["origin"], flight["destination"], flight["day"]) == wanted
    ]
    return json.dumps(found) if found else "There are no flights on that day."


def book_flight(flight: str, passengers: list[str], db: Database) -> str:
    """Books a flight with a standard fare.

    Args:
        flight: number of the flight
        passengers: their full names
    """
    found = _flight(db, flight)
    if not passengers:
        raise Refused("there must be a passenger")
    if found["seats"] < len(passengers):
        raise Refused(f"the flight has {found['seats']} seats left")
    found["seats"] -= len(passengers)
    code = f"N{len(db['bookings']):05}"
    db["bookings"][code] = {
        "passengers": sorted(name.strip().title() for name in passengers),
        "flight": flight.strip().upper(),
        "fare": "standard",
        "price": found["price"],
        "bags": 0,
        "booked": TODAY.isoformat(),
        "status": "booked",
    }
    return f"Booked as {code}. Price in all: {Decimal(found['price']) * len(passengers)}"


def cancel_booking(code: str, db: Database) -> str:
    """Cancels a booking and refunds its price, without asking whether the policy allows it.

    Args:
        code: code of the booking
    """
    found = _booked(db, code)
    found["status"] = "cancelled"
    return f"Cancelled. Refund: {Decimal(found['price']) * len(found['passengers'])}"


def change_flight(code: str, new_flight: str, db: Database) -> str:
    """Moves a booking to another flight, without asking whether the policy allows it.

    Args:
        code: code of the booking
        new_flight: number of the flight
    """
    found, new = _booked(db, code), _flight(db, new_flight)
    difference = (Decimal(new["price"]) - Decimal(found["price"])) * len(found["passengers"])
    found["flight"], found["price"] = new_flight.strip().upper(), new["price"]
    return f"Changed. Difference in price: {difference}"


def add_bags(code: str, bags: int, paid: int, db: Database) -> str:
    """Adds bags to a booking.

    Args:
        code: code of the booking
        bags: how many are added
        paid: how many of these are not free
    """
    found = _booked(db, code)
    if bags < 1 or not 0 <= paid <= bags:
        raise Refused("one bag or more, and of these none or some are paid for")
    found["bags"] += bags
    found["paid_bags"] = found.get("paid_bags", 0) + paid
    return f"Added. Price: {BAG_PRICE * paid}"


def _booking(db: Database, code: str) -> dict[str, Any]:
    found = db["bookings"].get(code.strip().upper())
    if found is None:
        raise Refused(f"there is no booking {code}")
    return found


def _booked(db: Database, code: str) -> dict[str, Any]:
    found = _booking(db, code)
    if found["status"] != "booked":
        raise Refused(f"the booking is {found['status']}")
    return found


def _flight(db: Database, number: str) -> dict[str, Any]:
    found = db["flights"].get(number.strip().upper())
    if found is None:
        raise Refused(f"there is no flight {number}")
    return found


# Databases and tasks


def make_database(rng: random.Random) -> Database:
    """Three flights a day between each two of three towns, on three days, and six bookings."""
    db: Database = {"flights": {}, "bookings": {}}
    towns = rng.sample(TOWNS, 3)
    numbers = iter(rng.sample(range(100, 1000), 200))
    for origin in towns:
        for destination in towns:
            for ahead in (10, 11, 12) if origin != destination else ():
                day = (TODAY + timedelta(days=ahead)).isoformat()
                for hour in sorted(rng.sample(range(6, 22), 3)):
                    flight = {"origin": origin, "destination": destination, "day": day}
                    about = {"departs": f"{hour:02}:{rng.choice((10, 25, 40))}", "price": money(rng), "seats": 9}
                    db["flights"][f"FL{next(numbers)}"] = flight | about
    for fare, days_ago in (("basic", 9), ("basic", 0), ("standard", 1), ("standard", 7), ("flex", 8), ("flex", 3)):
        code = "".join(rng.choices("ABCDEFGHJKLM23456789", k=6))
        flight = rng.choice(sorted(db["flights"]))
        db["bookings"][code] = {
            "passengers": sorted(rng.sample(NAMES, rng.randint(1, 3))),
            "flight": flight,
            "fare": fare,
            "price": db["flights"][flight]["price"],
            "bags": 0,
            "booked": (TODAY - timedelta(days=days_ago)).isoformat(),
            "status": "booked",
        }
    return db


def make_task(rng: random.Random, db: Database) -> Task:
    """What one traveller wants, in turn one of the kinds below."""
    return rng.choice((_book, _cancel, _not_cancelled, _change, _bags))(rng, db)


def _book(rng: random.Random, db: Database) -> Task:
    number = rng.choice(sorted(db["flights"]))
    wanted = db["flights"][number]
    alike = [n for n, f in db["flights"].items() if all(f[k] == wanted[k] for k in ("origin", "destination", "day"))]
    cheapest = min(alike, key=lambda n: Decimal(db["flights"][n]["price"]))
    names = rng.sample(NAMES, 2)
    return Task(
        kind="book",
        opening=f"We need the cheapest flight from {wanted['origin']} to {wanted['destination']}. What is it in all?",
        facts={"day": wanted["day"], "name": " and ".join(names)},
        actions=[action("book_flight", flight=cheapest, passengers=names)],
        outputs=[number_output(Decimal(db["flights"][cheapest]["price"]) * len(names))],
    )


def _cancel(rng: random.Random, db: Database) -> Task:
    code = rng.choice([code for code, b in db["bookings"].items() if _may_cancel(b)])
    booking = db["bookings"][code]
    return Task(
        kind="cancel",
        opening="Please cancel our booking. How much do we get back?",
        facts={"code": code, "name": booking["passengers"][0]},
        actions=[action("cancel_booking", code=code)],
        outputs=[number_output(Decimal(booking["price"]) * len(booking["passengers"]))],
    )


def _not_cancelled(rng: random.Random, db: Database) -> Task:
    code = rng.choice([code for code, b in db["bookings"].items() if not _may_cancel(b)])
    booking = db["bookings"][code]
    return Task(
        kind="not cancelled",
        opening="Cancel my booking, please. If that is not possible any more: what was the last day on which it was?",
        facts={"code": code, "name": booking["passengers"][0]},
        actions=[],
        outputs=[date_output(date.fromisoformat(booking["booked"]) + timedelta(days=1))],
    )


def _may_cancel(booking: dict[str, Any]) -> bool:
    return booking["fare"] == "flex" or TODAY - date.fromisoformat(booking["booked"]) <= timedelta(days=1)


def _change(rng: random.Random, db: Database) -> Task:
    code = rng.choice([code for code, b in db["bookings"].items() if b["fare"] != "basic"])
    booking = db["bookings"][code]
    flown = db["flights"][booking["flight"]]
    towns = (flown["origin"], flown["destination"])
    others = [
        n for n, f in db["flights"].items() if (f["origin"], f["destination"]) == towns and n != booking["flight"]
    ]
    wanted = rng.choice(others)
    new = db["flights"][wanted]
    difference = (Decimal(new["price"]) - Decimal(booking["price"])) * len(booking["passengers"])
    return Task(
        kind="change",
        opening="I have to travel at another time. Tell me the difference in price for the whole booking, too.",
        facts={
            "code": code,
            "day": f"{new['day']}, the flight that departs at {new['departs']}",
            "name": booking["passengers"][0],
        },
        actions=[action("change_flight", code=code, new_flight=wanted)],
        outputs=[number_output(abs(difference))],
    )


def _bags(rng: random.Random, db: Database) -> Task:
    code = rng.choice(sorted(db["bookings"]))
    booking = db["bookings"][code]
    free = FREE_BAGS[booking["fare"]] * len(booking["passengers"])
    bags = free + rng.randint(1, 3)
    return Task(
        kind="bags",
        opening="We have more luggage than we thought. Please add our bags and tell me what they cost.",
        facts={"code": code, "bags": f"{bags} bags in all, for everyone together", "name": booking["passengers"][0]},
        actions=[action("add_bags", code=code, bags=bags, paid=bags - free)],
        outputs=[number_output(BAG_PRICE * (bags - free))],
    )


FLIGHTS = Domain(
    name="flights",
    policy=POLICY,
    tools=(find_booking, search_flights, book_flight, cancel_booking, change_flight, add_bags),
    make_database=make_database,
    make_task=make_task,
)
