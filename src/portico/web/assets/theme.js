// Before anything is seen: the theme that this browser chose. Not a module, so that no page flashes.
try {
  const kept = localStorage.getItem("portico.theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch {
  // A browser that keeps nothing shows what the system likes.
}
