/** Modal dialogs by the browser's own <dialog>: it keeps the focus inside and gives it back when closed. */
import { classes, html, useEffect, useId, useRef } from "./html.js";
import { Icon } from "./icons.js";
import { t } from "./i18n.js";

/**
 * Open as long as it is rendered; `onClose` is called for Escape and the cross, and has to remove it.
 * @param {{title: any, onClose: () => void, children: any, footer?: any, wide?: boolean, onSubmit?: (event: Event) => void}} props
 *   onSubmit: the content is a form, and the footer's submit button calls this
 */
export function Dialog({ title, onClose, children, footer, wide = false, onSubmit }) {
  const ref = useRef(null);
  const id = useId("dialog");
  const isShown = useRef(true);

  useEffect(() => {
    const dialog = ref.current;
    dialog.showModal();
    const first = dialog.querySelector(".dialog-body :is(input, select, textarea):not([disabled]), [data-autofocus]");
    first?.focus();
    return () => {
      isShown.current = false;
      dialog.close();
    };
  }, []);

  const inner = [
    html`<header class="dialog-head">
      <h2 id=${id}>${title}</h2>
      <button type="button" class="icon-button" aria-label=${t("common.close")} onClick=${onClose}><${Icon} name="cross" /></button>
    </header>`,
    html`<div class="dialog-body">${children}</div>`,
    footer && html`<footer class="dialog-foot">${footer}</footer>`,
  ];
  const cancel = (event) => {
    event.preventDefault();
    onClose();
  };
  // A second Escape in a row closes a dialog without the event above.
  const closed = (event) => {
    if (isShown.current && event.target === ref.current) onClose();
  };
  const submit = (event) => {
    event.preventDefault();
    onSubmit(event);
  };
  return html`<dialog ref=${ref} class=${classes("dialog", wide && "is-wide")} aria-labelledby=${id} onCancel=${cancel} onClose=${closed}>
    ${onSubmit ? html`<form noValidate onSubmit=${submit}>${inner}</form>` : html`<div class="dialog-inner">${inner}</div>`}
  </dialog>`;
}
