// Keys that lead to views, and the list of them.
import { useEffect, useRef, useState } from 'preact/hooks'
import { useApp } from './app'

const views: Record<string, string> = { j: '#/jobs', c: '#/cluster', h: '#/history' }

/** isTyped reports whether a key is for a field or a dialog, or has a meaning of the browser. */
export function isTyped(event: KeyboardEvent): boolean {
  const target = event.target
  const inField = target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName))
  return inField || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]') !== null
}

/** how long the second key may come after g, in milliseconds. */
const pause = 1500

/** Keys listens for the keys of all views. */
export function Keys() {
  const { t, session } = useApp()
  const [help, setHelp] = useState(false)
  const last = useRef(0)
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (isTyped(event)) return
      const view = views[event.key]
      if (view && event.timeStamp - last.current < pause) {
        last.current = 0
        if (event.key !== 'h' || session?.history.reachable) location.hash = view
      } else if (event.key === 'g') last.current = event.timeStamp
      else if (event.key === '?') setHelp(true)
      else if (event.key === '/') {
        const field = document.querySelector<HTMLInputElement>('main input[type=search]')
        if (!field) return
        field.focus()
        field.select()
      } else return
      event.preventDefault()
      event.stopPropagation()
    }
    addEventListener('keydown', pressed, true)
    return () => removeEventListener('keydown', pressed, true)
  }, [session?.history.reachable])
  if (!help) return null
  return (
    <Help
      rows={[
        [['Ctrl', 'K'], t.keyPalette],
        [['/'], t.keySearch],
        [['j', 'k'], t.keyMove],
        [['Enter'], t.keyOpen],
        [['g', 'j'], t.jobs],
        [['g', 'c'], t.cluster],
        ...(session?.history.reachable ? [[['g', 'h'], t.history] as Shown] : []),
        [['?'], t.keyHelp],
      ]}
      close={() => setHelp(false)}
    />
  )
}

type Shown = [keys: string[], text: string]

function Help({ rows, close }: { rows: Shown[]; close: () => void }) {
  const { t } = useApp()
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => dialog.current?.showModal(), [])
  return (
    <dialog ref={dialog} aria-label={t.keyHelp} onClose={close}>
      <h2>{t.keyHelp}</h2>
      <dl class="keys">
        {rows.map(([keys, text]) => (
          <>
            <dt>
              {keys.map((key) => (
                <kbd>{key}</kbd>
              ))}
            </dt>
            <dd>{text}</dd>
          </>
        ))}
      </dl>
      <div class="buttons">
        <button type="button" onClick={() => dialog.current?.close()}>
          {t.close}
        </button>
      </div>
    </dialog>
  )
}
