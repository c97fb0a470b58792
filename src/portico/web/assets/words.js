// What the pages say, in the languages they speak. {name} stands for a value.

const WORDS = {
  en: {
    ask: "Ask", askAnything: "Ask anything…", question: "Your question", send: "Ask", stop: "Stop", stopped: "Stopped.",
    conversation: "Conversation", you: "You asked", looking: "Looking…", results: "{count} results", oneResult: "1 result",
    understood: "Understood", without: "Ask again without “{what}”", sources: "Source {number}: {name}",
    followups: "Go on with", starters: "Try", retry: "Try again", retryIn: "Try again in {seconds} s", editAsk: "Edit the question",
    copy: "Copy", copied: "Copied", helpful: "This helped", unhelpful: "This did not help", thanks: "Thank you. It was passed on.",
    whatMissing: "What was missing?", sendIt: "Send", failed: "That did not work", offline: "The site could not be reached.",
    blocked: "This page may not ask the site. Whoever runs it can allow this page's address.", history: "Earlier", newChat: "New", close: "Close",
    noHistory: "Nothing yet. What you ask stays in this browser.", remove: "Delete", removeAll: "Delete all", export: "Export",
    theme: "Theme", system: "System", light: "Light", dark: "Dark", language: "Language", where: "Where to look", everywhere: "Everything",
    how: "How to answer", list: "List", summarize: "List and summary", generate: "Answer", reply: "Go on",
    working: "Working on it", cancel: "Cancel", cancelled: "Cancelled.", done: "Done", confirm: "Are you sure?", cannotUndo: "You may not be able to undo this.",
    doIt: "Do it", back: "Back", approval: "Somebody has to approve this",
    approvalHow: "Whoever runs the site can approve it at the desk, with this token. Then try again.", token: "Token",
    needsKey: "This needs a key", keyHow: "Your key stays in this tab.", key: "API key", use: "Use it", more: "More",
    yes: "Yes", no: "No", minutes: "{count} min", hours: "{count} h", free: "Free",
    cheapest: "The cheapest", bestRated: "The best rated", newest: "The newest", under: "Under {minutes} minutes", only: "Only {what}",
    sUnder: "{what} under 30 minutes", sRated: "Best rated {what}", sCheap: "Cheapest {what}", sNew: "Newest {what}", sSoon: "Upcoming {what}",
    required: "This is needed", number: "A number is needed", whole: "A whole number is needed", choose: "Choose…", optional: "optional",
    least: "At least", most: "At most", longText: "Show all",
    inStock: "In stock", soldOut: "Sold out", enterHint: "Enter asks, Shift and Enter makes a new line, Escape stops.",
    shorter: "This is too long", longer: "This is too short", pattern: "This does not have the right form", json: "This is no JSON", items: "one per line",
    greetings: "hello|hi|hey|hello there|hi there|hey there|good morning|good afternoon|good evening|good day|greetings",
    greeting: "Hello! What would you like to know?", notKept: "There is no room left in this browser to keep this conversation.",
  },
  de: {
    ask: "Fragen", askAnything: "Was möchten Sie wissen?", question: "Ihre Frage", send: "Fragen", stop: "Anhalten", stopped: "Angehalten.",
    conversation: "Gespräch", you: "Ihre Frage", looking: "Ich suche…", results: "{count} Treffer", oneResult: "1 Treffer",
    understood: "Verstanden", without: "Noch einmal ohne „{what}“", sources: "Quelle {number}: {name}",
    followups: "Weiter mit", starters: "Zum Beispiel", retry: "Noch einmal", retryIn: "Noch einmal in {seconds} s", editAsk: "Frage ändern",
    copy: "Kopieren", copied: "Kopiert", helpful: "Das hat geholfen", unhelpful: "Das hat nicht geholfen", thanks: "Danke. Es wurde weitergegeben.",
    whatMissing: "Was hat gefehlt?", sendIt: "Senden", failed: "Das hat nicht geklappt", offline: "Die Seite ist nicht erreichbar.",
    blocked: "Diese Seite darf hier nicht fragen. Wer sie betreibt, kann diese Adresse zulassen.", history: "Früher", newChat: "Neu", close: "Schließen",
    noHistory: "Noch nichts. Was Sie fragen, bleibt in diesem Browser.", remove: "Löschen", removeAll: "Alles löschen", export: "Exportieren",
    theme: "Farben", system: "System", light: "Hell", dark: "Dunkel", language: "Sprache", where: "Wo gesucht wird", everywhere: "Überall",
    how: "Art der Antwort", list: "Liste", summarize: "Liste und Zusammenfassung", generate: "Antwort", reply: "Weiter",
    working: "In Arbeit", cancel: "Abbrechen", cancelled: "Abgebrochen.", done: "Fertig", confirm: "Sind Sie sicher?", cannotUndo: "Das lässt sich vielleicht nicht rückgängig machen.",
    doIt: "Ausführen", back: "Zurück", approval: "Das muss jemand genehmigen",
    approvalHow: "Wer die Seite betreibt, kann es am Pult mit diesem Token genehmigen. Danach noch einmal versuchen.", token: "Token",
    needsKey: "Dafür ist ein Schlüssel nötig", keyHow: "Der Schlüssel bleibt in diesem Tab.", key: "API-Schlüssel", use: "Verwenden", more: "Mehr",
    yes: "Ja", no: "Nein", minutes: "{count} Min.", hours: "{count} Std.", free: "Kostenlos",
    cheapest: "Das günstigste", bestRated: "Am besten bewertet", newest: "Das neueste", under: "Unter {minutes} Minuten", only: "Nur {what}",
    sUnder: "{what} unter 30 Minuten", sRated: "Am besten bewertete {what}", sCheap: "Günstigste {what}", sNew: "Neueste {what}", sSoon: "{what} demnächst",
    required: "Das wird gebraucht", number: "Hier wird eine Zahl gebraucht", whole: "Hier wird eine ganze Zahl gebraucht", choose: "Auswählen…", optional: "freiwillig",
    least: "Mindestens", most: "Höchstens", longText: "Alles zeigen",
    inStock: "Vorrätig", soldOut: "Ausverkauft", enterHint: "Eingabe fragt, Umschalt und Eingabe macht eine neue Zeile, Escape hält an.",
    shorter: "Das ist zu lang", longer: "Das ist zu kurz", pattern: "Das hat nicht die richtige Form", json: "Das ist kein JSON", items: "eins pro Zeile",
    greetings: "hallo|hallo zusammen|guten morgen|guten tag|guten abend|servus|moin|grüß gott|grüezi",
    greeting: "Hallo! Was möchten Sie wissen?", notKept: "In diesem Browser ist kein Platz mehr, um das Gespräch aufzuheben.",
  },
  es: {
    ask: "Preguntar", askAnything: "Pregunte lo que quiera…", question: "Su pregunta", send: "Preguntar", stop: "Parar", stopped: "Parado.",
    conversation: "Conversación", you: "Su pregunta", looking: "Buscando…", results: "{count} resultados", oneResult: "1 resultado",
    understood: "Entendido", without: "Preguntar otra vez sin «{what}»", sources: "Fuente {number}: {name}",
    followups: "Seguir con", starters: "Pruebe", retry: "Otra vez", retryIn: "Otra vez en {seconds} s", editAsk: "Cambiar la pregunta",
    copy: "Copiar", copied: "Copiado", helpful: "Ha servido", unhelpful: "No ha servido", thanks: "Gracias. Se ha transmitido.",
    whatMissing: "¿Qué faltaba?", sendIt: "Enviar", failed: "No ha funcionado", offline: "No se pudo llegar al sitio.",
    blocked: "Esta página no puede preguntar al sitio. Quien lo lleva puede permitir su dirección.", history: "Anteriores", newChat: "Nueva", close: "Cerrar",
    noHistory: "Nada todavía. Lo que pregunta se queda en este navegador.", remove: "Borrar", removeAll: "Borrar todo", export: "Exportar",
    theme: "Tema", system: "Sistema", light: "Claro", dark: "Oscuro", language: "Idioma", where: "Dónde buscar", everywhere: "Todo",
    how: "Cómo responder", list: "Lista", summarize: "Lista y resumen", generate: "Respuesta", reply: "Seguir",
    working: "En ello", cancel: "Cancelar", cancelled: "Cancelado.", done: "Hecho", confirm: "¿Seguro?", cannotUndo: "Puede que no se pueda deshacer.",
    doIt: "Hacerlo", back: "Atrás", approval: "Alguien tiene que aprobarlo",
    approvalHow: "Quien lleva el sitio puede aprobarlo en su mesa con este código. Después, inténtelo otra vez.", token: "Código",
    needsKey: "Hace falta una clave", keyHow: "La clave se queda en esta pestaña.", key: "Clave de API", use: "Usar", more: "Más",
    yes: "Sí", no: "No", minutes: "{count} min", hours: "{count} h", free: "Gratis",
    cheapest: "Lo más barato", bestRated: "Lo mejor valorado", newest: "Lo más nuevo", under: "Menos de {minutes} minutos", only: "Solo {what}",
    sUnder: "{what} en menos de 30 minutos", sRated: "{what} mejor valorados", sCheap: "{what} más baratos", sNew: "{what} más nuevos", sSoon: "{what} próximamente",
    required: "Esto hace falta", number: "Hace falta un número", whole: "Hace falta un número entero", choose: "Elegir…", optional: "opcional",
    least: "Al menos", most: "Como mucho", longText: "Mostrar todo",
    inStock: "Disponible", soldOut: "Agotado", enterHint: "Intro pregunta, Mayús e Intro hace una línea nueva, Escape para.",
    shorter: "Esto es demasiado largo", longer: "Esto es demasiado corto", pattern: "Esto no tiene la forma correcta", json: "Esto no es JSON", items: "uno por línea",
    greetings: "hola|hola a todos|buenas|buenos días|buenas tardes|buenas noches",
    greeting: "¡Hola! ¿Qué le gustaría saber?", notKept: "En este navegador ya no hay sitio para guardar la conversación.",
  },
  fr: {
    ask: "Demander", askAnything: "Posez une question…", question: "Votre question", send: "Demander", stop: "Arrêter", stopped: "Arrêté.",
    conversation: "Conversation", you: "Votre question", looking: "Je cherche…", results: "{count} résultats", oneResult: "1 résultat",
    understood: "Compris", without: "Redemander sans « {what} »", sources: "Source {number} : {name}",
    followups: "Continuer avec", starters: "Essayez", retry: "Réessayer", retryIn: "Réessayer dans {seconds} s", editAsk: "Modifier la question",
    copy: "Copier", copied: "Copié", helpful: "Cela m'a aidé", unhelpful: "Cela ne m'a pas aidé", thanks: "Merci. C'est transmis.",
    whatMissing: "Que manquait-il ?", sendIt: "Envoyer", failed: "Cela n'a pas marché", offline: "Le site est injoignable.",
    blocked: "Cette page ne peut pas interroger le site. Qui le gère peut autoriser son adresse.", history: "Avant", newChat: "Nouveau", close: "Fermer",
    noHistory: "Rien encore. Vos questions restent dans ce navigateur.", remove: "Supprimer", removeAll: "Tout supprimer", export: "Exporter",
    theme: "Thème", system: "Système", light: "Clair", dark: "Sombre", language: "Langue", where: "Où chercher", everywhere: "Partout",
    how: "Comment répondre", list: "Liste", summarize: "Liste et résumé", generate: "Réponse", reply: "Continuer",
    working: "En cours", cancel: "Annuler", cancelled: "Annulé.", done: "Fait", confirm: "Vraiment ?", cannotUndo: "Cela ne pourra peut-être pas être défait.",
    doIt: "Le faire", back: "Retour", approval: "Quelqu'un doit l'approuver",
    approvalHow: "Qui gère le site peut l'approuver à son bureau avec ce jeton. Réessayez ensuite.", token: "Jeton",
    needsKey: "Il faut une clé", keyHow: "La clé reste dans cet onglet.", key: "Clé d'API", use: "Utiliser", more: "Plus",
    yes: "Oui", no: "Non", minutes: "{count} min", hours: "{count} h", free: "Gratuit",
    cheapest: "Le moins cher", bestRated: "Le mieux noté", newest: "Le plus récent", under: "Moins de {minutes} minutes", only: "Seulement {what}",
    sUnder: "{what} en moins de 30 minutes", sRated: "{what} les mieux notés", sCheap: "{what} les moins chers", sNew: "{what} les plus récents", sSoon: "{what} prochainement",
    required: "Ceci est nécessaire", number: "Il faut un nombre", whole: "Il faut un nombre entier", choose: "Choisir…", optional: "facultatif",
    least: "Au moins", most: "Au plus", longText: "Tout montrer",
    inStock: "En stock", soldOut: "Épuisé", enterHint: "Entrée demande, Maj et Entrée ajoute une ligne, Échap arrête.",
    shorter: "C'est trop long", longer: "C'est trop court", pattern: "Ceci n'a pas la bonne forme", json: "Ce n'est pas du JSON", items: "un par ligne",
    greetings: "bonjour|bonjour à tous|bonsoir|salut|coucou",
    greeting: "Bonjour ! Que voulez-vous savoir ?", notKept: "Il n'y a plus de place dans ce navigateur pour garder la conversation.",
  },
  ar: {
    ask: "اسأل", askAnything: "اسأل عن أي شيء…", question: "سؤالك", send: "اسأل", stop: "إيقاف", stopped: "تم الإيقاف.",
    conversation: "المحادثة", you: "سؤالك", looking: "جارٍ البحث…", results: "عدد النتائج: {count}", oneResult: "نتيجة واحدة",
    understood: "ما فُهم", without: "اسأل مجددًا دون «{what}»", sources: "المصدر {number}: {name}",
    followups: "تابع مع", starters: "جرّب", retry: "حاول مجددًا", retryIn: "حاول مجددًا بعد {seconds} ث", editAsk: "تعديل السؤال",
    copy: "نسخ", copied: "تم النسخ", helpful: "كان هذا مفيدًا", unhelpful: "لم يكن هذا مفيدًا", thanks: "شكرًا لك. تم إرسال رأيك.",
    whatMissing: "ما الذي كان ناقصًا؟", sendIt: "إرسال", failed: "لم ينجح ذلك", offline: "تعذّر الوصول إلى الموقع.",
    blocked: "لا يُسمح لهذه الصفحة بسؤال الموقع. يمكن لمن يديره أن يسمح بعنوانها.", history: "السابق", newChat: "جديد", close: "إغلاق",
    noHistory: "لا شيء بعد. ما تسأل عنه يبقى في هذا المتصفح.", remove: "حذف", removeAll: "حذف الكل", export: "تصدير",
    theme: "المظهر", system: "النظام", light: "فاتح", dark: "داكن", language: "اللغة", where: "أين نبحث", everywhere: "كل شيء",
    how: "طريقة الإجابة", list: "قائمة", summarize: "قائمة وملخص", generate: "إجابة", reply: "متابعة",
    working: "قيد التنفيذ", cancel: "إلغاء", cancelled: "تم الإلغاء.", done: "تم", confirm: "هل أنت متأكد؟", cannotUndo: "قد لا يمكن التراجع عن هذا.",
    doIt: "نفّذ", back: "رجوع", approval: "يجب أن يوافق شخص ما على هذا",
    approvalHow: "يمكن لمن يدير الموقع الموافقة عليه من مكتبه بهذا الرمز. ثم حاول مجددًا.", token: "الرمز",
    needsKey: "يلزم مفتاح لهذا", keyHow: "يبقى مفتاحك في هذه النافذة.", key: "مفتاح API", use: "استخدام", more: "المزيد",
    yes: "نعم", no: "لا", minutes: "{count} د", hours: "{count} س", free: "مجاني",
    cheapest: "الأرخص", bestRated: "الأعلى تقييمًا", newest: "الأحدث", under: "أقل من {minutes} دقيقة", only: "فقط {what}",
    sUnder: "{what} في أقل من 30 دقيقة", sRated: "{what} الأعلى تقييمًا", sCheap: "{what} الأرخص", sNew: "{what} الأحدث", sSoon: "{what} قريبًا",
    required: "هذا مطلوب", number: "يلزم رقم", whole: "يلزم عدد صحيح", choose: "اختر…", optional: "اختياري",
    least: "على الأقل", most: "على الأكثر", longText: "عرض الكل",
    inStock: "متوفر", soldOut: "نفد", enterHint: "مفتاح الإدخال يسأل، ومع Shift يبدأ سطرًا جديدًا، وEscape يوقف.",
    shorter: "هذا طويل جدًا", longer: "هذا قصير جدًا", pattern: "هذا ليس بالشكل الصحيح", json: "هذا ليس JSON", items: "واحد في كل سطر",
    greetings: "مرحبا|مرحبًا|أهلا|أهلًا|السلام عليكم|صباح الخير|مساء الخير",
    greeting: "مرحبًا! ماذا تريد أن تعرف؟", notKept: "لا مكان في هذا المتصفح لحفظ هذه المحادثة.",
  },
};

export const LANGUAGES = { en: "English", de: "Deutsch", es: "Español", fr: "Français", ar: "العربية" };
const ASKED = new Set(["en", "de", "es", "fr"]); // in which a site understands what sets items apart
const RIGHT_TO_LEFT = new Set(["ar", "arc", "ckb", "dv", "fa", "he", "ku", "ps", "sd", "ug", "ur", "yi"]);

/** The direction of a language's script. */
export function direction(language) {
  return RIGHT_TO_LEFT.has(String(language).split("-")[0].toLowerCase()) ? "rtl" : "ltr";
}

/** The first of some languages that there are words for; English if there is none. */
export function spoken(...wanted) {
  const known = wanted.flat().map((each) => String(each ?? "").split("-")[0].toLowerCase());
  return known.find((each) => each in WORDS) ?? "en";
}

/** Whether somebody says hello, in any language, and nothing else. */
export function isGreeting(text) {
  const said = text.toLowerCase().replace(/[^\p{L}\p{M}]+/gu, " ").trim();
  return Object.values(WORDS).some(({ greetings }) => greetings.split("|").includes(said));
}

/** What to say in a language: `say("results", {count: 3})`. */
export function words(language) {
  const table = WORDS[spoken(language)];
  const say = (name, values = {}) =>
    (table[name] ?? WORDS.en[name] ?? name).replace(/\{(\w+)\}/g, (_, key) => String(values[key] ?? ""));
  say.language = spoken(language);
  say.isAsked = ASKED.has(say.language); // whether a question may be made of these words
  say.form = table; // for forms, which bring their own English
  return say;
}
