// What was done is said at the edge of the page for a while.
import { useEffect, useState } from 'preact/hooks'

const event = 'di-toast'
const shown = 6000

/** toast says a text. */
export function toast(text: string): void {
  dispatchEvent(new CustomEvent(event, { detail: text }))
}

/** Toasts shows the last text that was said. */
export function Toasts() {
  const [text, setText] = useState('')
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined
    const say = (said: Event) => {
      clearTimeout(timer)
      setText((said as CustomEvent<string>).detail)
      timer = setTimeout(() => setText(''), shown)
    }
    addEventListener(event, say)
    return () => {
      clearTimeout(timer)
      removeEventListener(event, say)
    }
  }, [])
  return (
    <div class="toasts" role="status">
      {text && <p class="toast">{text}</p>}
    </div>
  )
}
