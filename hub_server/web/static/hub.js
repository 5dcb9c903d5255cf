/* What pages gain with JavaScript; without it everything can still be read and done. */
"use strict";

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 1500);
});

if (navigator.clipboard) {
  for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
}

document.addEventListener("keydown", (event) => {
  const field = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || field || event.ctrlKey || event.metaKey || document.querySelector(".rv-form")) return;
  event.preventDefault();
  (document.querySelector("#q") || document.querySelector(".find input")).focus();
});
