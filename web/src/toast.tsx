// What was done is said at the edge of the page for a while, with a button that undoes it.
import { useEffect, useState } from 'preact/hooks'
import { useApp } from './app'

const event = 'di-toast'
const shown = 6000
const shownWithUndo = 12_000

interface Said {
  text: string
  /** undo does the opposite; absent if there is none. */
  undo?: () => Promise<unknown>
}

/** toast says a text. */
export function toast(text: string, undo?: () => Promise<unknown>): void {
  dispatchEvent(new CustomEvent<Said>(event, { detail: { text, ...(undo && { undo }) } }))
}

/** Toasts shows the last text that was said. */
export function Toasts() {
  const { t } = useApp()
  const [said, setSaid] = useState<Said>()
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined
    const say = (next: Event) => {
      const { detail } = next as CustomEvent<Said>
      clearTimeout(timer)
      setSaid(detail)
      timer = setTimeout(() => setSaid(undefined), detail.undo ? shownWithUndo : shown)
    }
    addEventListener(event, say)
    return () => {
      clearTimeout(timer)
      removeEventListener(event, say)
    }
  }, [])
  const undo = () => {
    setSaid(undefined)
    said?.undo?.().then(
      () => toast(t.undone),
      (failed: Error) => toast(t.notUndone(failed.message)),
    )
  }
  return (
    <div class="toasts" role="status">
      {said && (
        <p class="toast">
          {said.text}{' '}
          {said.undo && (
            <button type="button" class="small" onClick={undo}>
              {t.undo}
            </button>
          )}
        </p>
      )}
    </div>
  )
}
