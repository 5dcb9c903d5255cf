"""The shop: its database, its tools, its policy, and what customers want of it."""

from __future__ import annotations

import json
import random
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from user_sim.task import Domain, Refused, Task, action, date_output, money, number_output

TODAY = date(2030, 5, 20)
RETURN_DAYS = 30
POLICY = f"""\
You serve customers of an online shop. Today is {TODAY.isoformat()}.
- Find the customer by e-mail address before anything else, and speak only of that customer's own orders.
- An order can be cancelled, or its address changed, only while its status is "pending".
- Items can be returned only from a delivered order, at most {RETURN_DAYS} days after delivery; the last day is the
  {RETURN_DAYS}th day after it. The refund is the price that was paid.
- An item can be exchanged, on the same terms, for another variant of the same product that is in stock. The difference
  in price is charged or refunded.
- What the policy does not allow is refused, and the customer is told why.
- Do not invent anything: everything you tell comes from the tools."""

NAMES = ("Ada Brook", "Milo Hart", "Ines Vale", "Otto Lind", "Rosa Finch", "Jonas Pike", "Tilda Moss", "Karim Wells")
STREETS = ("Mill Lane", "Harbour Road", "Station Street", "Orchard Way", "Castle Hill")
PRODUCTS = {
    "raincoat": ("blue, S", "blue, M", "yellow, M", "green, L"),
    "kettle": ("steel, 1 l", "steel, 1.7 l", "red, 1.7 l"),
    "desk lamp": ("black", "white", "brass"),
    "backpack": ("grey, 20 l", "grey, 30 l", "orange, 30 l"),
    "tea set": ("2 cups", "4 cups", "6 cups"),
}
REASONS = ("ordered by mistake", "no longer needed")

Database = dict[str, Any]


def find_customer(email: str, db: Database) -> str:
    """Finds a customer and the numbers of the customer's orders.

    Args:
        email: the customer's e-mail address
    """
    for number, customer in db["customers"].items():
        if customer["email"] == email.strip().lower():
            orders = [order for order, one in db["orders"].items() if one["customer"] == number]
            return json.dumps({"customer": number, **customer, "orders": orders})
    raise Refused(f"there is no customer with the address {email}")


def get_order(order: str, db: Database) -> str:
    """Shows an order: its status, items with their prices, address and dates.

    Args:
        order: number of the order, such as R1234
    """
    return json.dumps({"order": order.strip().upper(), **_order(db, order)})


def get_product(product: str, db: Database) -> str:
    """Shows the variants of a product, with their item numbers, prices and stock.

    Args:
        product: name of the product, such as kettle
    """
    found = db["products"].get(product.strip().lower())
    if found is None:
        raise Refused(f"there is no product {product!r}; there are: {', '.join(db['products'])}")
    return json.dumps(found)


def cancel_order(order: str, reason: str, db: Database) -> str:
    """Cancels a pending order and refunds what was paid.

    Args:
        order: number of the order
        reason: "ordered by mistake" or "no longer needed"
    """
    found = _pending(db, order)
    if reason not in REASONS:
        raise Refused(f"the reason is one of: {', '.join(REASONS)}")
    found["status"], found["cancelled_because"] = "cancelled", reason
    return f"Cancelled. Refund: {_total(found)}"


def change_address(order: str, address: str, db: Database) -> str:
    """Changes the address of a pending order.

    Args:
        order: number of the order
        address: street and number
    """
    _pending(db, order)["address"] = address
    return f"The order goes to {address}."


def return_items(order: str, items: list[str], db: Database) -> str:
    """Takes items of a delivered order back.

    Args:
        order: number of the order
        items: item numbers, each as often as it is returned
    """
    found = _delivered(db, order)
    bought = [item["item"] for item in found["items"]]
    if not items or any(items.count(item) > bought.count(item) for item in items):
        raise Refused(f"the order has the items {', '.join(bought)}")
    found["status"], found["returned"] = "return requested", sorted(items)
    prices = [Decimal(item["price"]) for item in found["items"] if item["item"] in items]
    return f"A return label was sent. Refund: {sum(prices)}"


def exchange_item(order: str, item: str, new_item: str, db: Database) -> str:
    """Exchanges an item of a delivered order for another variant of the same product.

    Args:
        order: number of the order
        item: item number of what was bought
        new_item: item number of what is wanted instead
    """
    found = _delivered(db, order)
    bought = next((one for one in found["items"] if one["item"] == item), None)
    if bought is None:
        raise Refused(f"the order has no item {item}")
    variant = next((v for v in db["products"][bought["product"]] if v["item"] == new_item), None)
    if variant is None:
        raise Refused(f"{new_item} is no variant of {bought['product']}")
    if not variant["stock"]:
        raise Refused(f"{new_item} is out of stock")
    variant["stock"] -= 1
    found["status"], found["exchanged"] = "exchange requested", {item: new_item}
    return f"Exchanged. Difference in price: {Decimal(variant['price']) - Decimal(bought['price'])}"


def _order(db: Database, order: str) -> dict[str, Any]:
    found = db["orders"].get(order.strip().upper())
    if found is None:
        raise Refused(f"there is no order {order}")
    return found


def _pending(db: Database, order: str) -> dict[str, Any]:
    found = _order(db, order)
    if found["status"] != "pending":
        raise Refused(f"the order is {found['status']}, not pending")
    return found


def _delivered(db: Database, order: str) -> dict[str, Any]:
    found = _order(db, order)
    if found["status"] != "delivered":
        raise Refused(f"the order is {found['status']}, not delivered")
    last = date.fromisoformat(found["delivered"]) + timedelta(days=RETURN_DAYS)
    if last < TODAY:
        raise Refused(f"returns were possible until {last.isoformat()}")
    return found


def _total(order: dict[str, Any]) -> Decimal:
    return sum((Decimal(item["price"]) for item in order["items"]), Decimal(0))


# Databases and tasks


def make_database(rng: random.Random) -> Database:
    """Four customers with three orders each: one pending, one delivered lately, one long ago."""
    db: Database = {"customers": {}, "orders": {}, "products": _products(rng)}
    for number, name in enumerate(rng.sample(NAMES, 4), start=1):
        customer = f"C{number:03}"
        email = f"{name.lower().replace(' ', '.')}@post.example"
        db["customers"][customer] = {"name": name, "email": email}
        for status, days_ago in (
            ("pending", None),
            ("delivered", rng.randint(3, 25)),
            ("delivered", rng.randint(35, 90)),
        ):
            order = f"R{rng.randint(1000, 9999)}"
            while order in db["orders"]:
                order = f"R{rng.randint(1000, 9999)}"
            db["orders"][order] = _made_order(rng, db, customer, status, days_ago)
    return db


def _products(rng: random.Random) -> dict[str, list[dict[str, Any]]]:
    numbers = iter(rng.sample(range(100, 1000), sum(map(len, PRODUCTS.values()))))
    return {
        product: [
            {"item": f"I{next(numbers)}", "variant": variant, "price": money(rng), "stock": rng.choice([0, 3, 8])}
            for variant in variants
        ]
        for product, variants in PRODUCTS.items()
    }


def _made_order(rng: random.Random, db: Database, customer: str, status: str, days_ago: int | None) -> dict[str, Any]:
    items = []
    for product in rng.sample(sorted(PRODUCTS), 2):
        variant = rng.choice(db["products"][product])
        items.append({"product": product} | {key: variant[key] for key in ("item", "variant", "price")})
    delivered = None if days_ago is None else (TODAY - timedelta(days=days_ago)).isoformat()
    address = f"{rng.choice(STREETS)} {rng.randint(1, 80)}"
    return {"customer": customer, "status": status, "items": items, "address": address, "delivered": delivered}


def make_task(rng: random.Random, db: Database) -> Task:
    """What one customer wants, in turn one of the kinds below."""
    customer = rng.choice(sorted(db["customers"]))
    pending, lately, long_ago = (number for number, one in db["orders"].items() if one["customer"] == customer)
    facts = {"email": db["customers"][customer]["email"], "name": db["customers"][customer]["name"]}
    kind = rng.choice((_cancel, _move, _return, _too_late, _exchange, _spent))
    return kind(rng, db, facts, pending, lately, long_ago)


def _cancel(rng: random.Random, db: Database, facts: dict[str, str], pending: str, *_: str) -> Task:
    reason = rng.choice(REASONS)
    return Task(
        kind="cancel",
        opening="Hello, I want to cancel an order, and to know how much money I get back.",
        facts=facts | {"order": pending, "reason": reason},
        actions=[action("cancel_order", order=pending, reason=reason)],
        outputs=[number_output(_total(db["orders"][pending]))],
    )


def _move(rng: random.Random, db: Database, facts: dict[str, str], pending: str, *_: str) -> Task:
    address = f"{rng.choice(STREETS)} {rng.randint(81, 160)}"
    return Task(
        kind="move",
        opening="Hi! I am moving, so the order that is still on its way has to go to my new address.",
        facts=facts | {"order": pending, "address": address},
        actions=[action("change_address", order=pending, address=address)],
        outputs=[],
    )


def _return(rng: random.Random, db: Database, facts: dict[str, str], pending: str, lately: str, long_ago: str) -> Task:
    item = rng.choice(db["orders"][lately]["items"])
    return Task(
        kind="return",
        opening=f"I want to send the {item['product']} back. What will be refunded?",
        facts=facts | {"order": lately, "item": f"the {item['product']} ({item['variant']})"},
        actions=[action("return_items", order=lately, items=[item["item"]])],
        outputs=[number_output(Decimal(item["price"]))],
    )


def _too_late(
    rng: random.Random, db: Database, facts: dict[str, str], pending: str, lately: str, long_ago: str
) -> Task:
    item = rng.choice(db["orders"][long_ago]["items"])
    last = date.fromisoformat(db["orders"][long_ago]["delivered"]) + timedelta(days=RETURN_DAYS)
    return Task(
        kind="too late",
        opening=f"I want to send a {item['product']} back. If that cannot be done, tell me until which day it could.",
        facts=facts | {"order": long_ago, "item": f"the {item['product']} ({item['variant']})"},
        actions=[],
        outputs=[date_output(last)],
    )


def _exchange(
    rng: random.Random, db: Database, facts: dict[str, str], pending: str, lately: str, long_ago: str
) -> Task:
    item = db["orders"][lately]["items"][0]
    others = [v for v in db["products"][item["product"]] if v["item"] != item["item"]]
    if not any(v["stock"] for v in others):
        others[0]["stock"] = 3
    wanted = rng.choice([v for v in others if v["stock"]])
    return Task(
        kind="exchange",
        opening=f"My {item['product']} is not right. Can I have another one? What is the difference in price?",
        facts=facts
        | {"order": lately, "item": f"the {item['product']} ({item['variant']})"}
        | {"wanted": f"the one that is {wanted['variant']}"},
        actions=[action("exchange_item", order=lately, item=item["item"], new_item=wanted["item"])],
        outputs=[number_output(abs(Decimal(wanted["price"]) - Decimal(item["price"])))],
    )


def _spent(rng: random.Random, db: Database, facts: dict[str, str], *orders: str) -> Task:
    delivered = [order for order in orders if db["orders"][order]["status"] == "delivered"]
    return Task(
        kind="spent",
        opening="How much did I pay in all for the orders that have been delivered to me?",
        facts=facts,
        actions=[],
        outputs=[number_output(sum((_total(db["orders"][order]) for order in delivered), Decimal(0)))],
    )


SHOP = Domain(
    name="shop",
    policy=POLICY,
    tools=(find_customer, get_order, get_product, cancel_order, change_address, return_items, exchange_item),
    make_database=make_database,
    make_task=make_task,
)
