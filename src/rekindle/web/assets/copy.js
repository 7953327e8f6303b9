// The copy button beside every command. Without access to the clipboard it selects the text instead.
"use strict";
async function copyFrom(button) {
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = "Press Ctrl+C";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}
document.addEventListener("click", (event) => {
  if (event.target instanceof Element && event.target.matches("button.copy")) copyFrom(event.target);
});
