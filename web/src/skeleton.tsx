// What is shown while data are on their way.
import { useApp } from './app'

/** Skeleton has the shape of some lines, and says that they are loaded. */
export function Skeleton({ lines = 6 }: { lines?: number }) {
  const { t } = useApp()
  return (
    <div class="skeleton" role="status">
      <span class="hidden">{t.loading}</span>
      {Array.from({ length: lines }, () => (
        <span class="bone" aria-hidden="true" />
      ))}
    </div>
  )
}
