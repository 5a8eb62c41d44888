// Which part of a box that scrolls is in view.
import { useEffect, useRef, useState } from 'preact/hooks'

/** useScroll returns where a box is scrolled to, and how high it is. */
export function useScroll<T extends HTMLElement>() {
  const box = useRef<T>(null)
  const [view, setView] = useState({ top: 0, height: 800 })
  useEffect(() => {
    const element = box.current
    if (!element) return
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight })
    const observer = new ResizeObserver(measure)
    observer.observe(element)
    element.addEventListener('scroll', measure, { passive: true })
    return () => {
      observer.disconnect()
      element.removeEventListener('scroll', measure)
    }
  }, [])
  return [box, view] as const
}
