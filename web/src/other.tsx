// The views other than the list of jobs, which are loaded after it.
import { useEffect, useState } from 'preact/hooks'
import { useApp } from './app'
import { Problem } from './problem'
import type { Route } from './route'
import { Skeleton } from './skeleton'
import { delay } from './stream'

type Views = typeof import('./views')

/** idle is how long the views are not loaded without need, in milliseconds: the list of jobs comes first. */
const idle = 1000

/** OtherView is what a route shows, unless it is the list of jobs. The views are loaded at once if they are needed, else soon. */
export function OtherView({ route }: { route: Route }) {
  const { t } = useApp()
  const [views, setViews] = useState<Views>()
  const [attempt, setAttempt] = useState(0)
  const isNeeded = route.view !== 'jobs' && route.view !== 'unknown'
  useEffect(() => {
    if (views) return
    const wait = attempt ? delay(attempt - 1) : isNeeded ? 0 : idle
    const timer = setTimeout(() => void import('./views').then(setViews, () => setAttempt(attempt + 1)), wait)
    return () => clearTimeout(timer)
  }, [views, attempt, isNeeded])
  if (views) return <views.View route={route} />
  if (!isNeeded) return null
  if (attempt === 0) return <Skeleton lines={12} />
  return (
    <Problem kind="restarting" title={t.lostFirst} isAlone>
      <p>{t.lostText}</p>
    </Problem>
  )
}
