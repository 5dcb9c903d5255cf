// Keys for the rollout viewer. Pages are complete without this file: it only presses their links and folds.
"use strict";

(() => {
  const KEYS = [
    ["j  or  →", "next rollout", () => follow("next")],
    ["k  or  ←", "previous rollout", () => follow("prev")],
    ["n", "next message", () => step(1)],
    ["p", "previous message", () => step(-1)],
    ["e", "open or close all folds", toggleFolds],
    ["/", "go to the filter", focusFilter],
    ["u", "up to the list", () => press(document.querySelector("a[rel='up']"))],
    ["?", "these keys", showKeys],
  ];
  const ACTIONS = new Map(KEYS.flatMap(([names, , act]) => names.split("  or  ").map((name) => [name, act])));
  ACTIONS.set("ArrowRight", ACTIONS.get("→")).set("ArrowLeft", ACTIONS.get("←"));
  const OPENED = "rv-folds-open"; // in sessionStorage: whoever opened all folds wants them open in the next rollout

  const folds = () => document.querySelectorAll(".rv-rollout details");

  function press(link) {
    if (!link) return false;
    link.click();
    return true;
  }

  // In a rollout to its neighbour; in a list to the next square.
  function follow(rel) {
    if (document.querySelector(".rv-rollout")) return press(document.querySelector(`.rv-steps a[rel='${rel}']`));
    const squares = [...document.querySelectorAll(".rv-examples .rv-try, .rv-comparison .rv-try")];
    if (!squares.length) return false;
    const here = squares.indexOf(document.activeElement);
    const at = here < 0 ? 0 : here + (rel === "next" ? 1 : -1);
    squares[Math.min(Math.max(at, 0), squares.length - 1)].focus();
    return true;
  }

  function step(direction) {
    const cards = [...document.querySelectorAll(".rv-conversation > .rv-msg")];
    if (!cards.length) return false;
    const margin = 8;
    const tops = cards.map((card) => card.getBoundingClientRect().top);
    let at = direction > 0 ? tops.findIndex((top) => top > margin + 1) : tops.findLastIndex((top) => top < margin - 1);
    if (at < 0) at = direction > 0 ? cards.length - 1 : 0;
    window.scrollBy({ top: tops[at] - margin });
    return true;
  }

  function toggleFolds() {
    const all = [...folds()];
    if (!all.length) return false;
    const open = !all.every((fold) => fold.open);
    all.forEach((fold) => (fold.open = open));
    remember(open);
    return true;
  }

  function remember(open) {
    try {
      sessionStorage.setItem(OPENED, open ? "1" : "");
    } catch {
      // storage may be switched off; then nothing is remembered
    }
  }

  function isRemembered() {
    try {
      return sessionStorage.getItem(OPENED) === "1";
    } catch {
      return false;
    }
  }

  function focusFilter() {
    const field = document.querySelector("#rv-filter");
    if (field) {
      field.focus();
      field.select();
      return true;
    }
    return press(document.querySelector("a[rel='up']"));
  }

  function showKeys() {
    let dialog = document.querySelector("dialog.rv-keys");
    if (!dialog) {
      dialog = document.createElement("dialog");
      dialog.className = "rv-keys";
      dialog.setAttribute("aria-labelledby", "rv-keys-title");
      const title = document.createElement("h2");
      title.id = "rv-keys-title";
      title.textContent = "Keys";
      const list = document.createElement("dl");
      for (const [names, what] of KEYS) {
        const term = document.createElement("dt");
        term.textContent = names;
        const meaning = document.createElement("dd");
        meaning.textContent = what;
        list.append(term, meaning);
      }
      const form = document.createElement("form");
      form.method = "dialog";
      const close = document.createElement("button");
      close.textContent = "Close";
      form.append(close);
      dialog.append(title, list, form);
      document.body.append(dialog);
    }
    if (!dialog.open) dialog.showModal();
    return true;
  }

  function isTyping(target) {
    return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"));
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return; // its own keys
    const act = ACTIONS.get(event.key);
    if (act && act()) event.preventDefault();
  });

  if (isRemembered()) folds().forEach((fold) => (fold.open = true));
  document.querySelector(".rv-list .rv-here")?.scrollIntoView({ block: "nearest" });
})();
