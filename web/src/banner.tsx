// What is said above a view whose data are not current, or in place of one that has none.
import type { ComponentChildren } from 'preact'
import { useApp } from './app'
import { clock } from './format'
import { Denied, Problem, SignedOut } from './problem'
import type { Stream } from './stream'

interface Props {
  stream: Stream<unknown>
  /** What is shown if the server has no such thing. */
  missing?: ComponentChildren
}

/** Banner says that what is shown is not current. */
export function Banner({ stream, missing }: Props) {
  return (
    <div role="status" class="status">
      <State stream={stream} missing={missing} />
    </div>
  )
}

function State({ stream, missing }: Props) {
  const { t } = useApp()
  const { state, at, data, retry } = stream
  const again = (
    <button type="button" class="small" onClick={retry}>
      {t.tryNow}
    </button>
  )
  switch (state.kind) {
    case 'lost':
      if (!data) {
        return (
          <Problem kind="restarting" title={t.lostFirst}>
            <p>{state.message || t.lostText}</p>
            <p>{again}</p>
          </Problem>
        )
      }
      return (
        <p class="banner warning">
          <b>{t.lost(clock(at))}</b> {state.message} {again}
        </p>
      )
    case 'refused':
      if (state.error.status === 401) return <SignedOut />
      if (state.error.status === 404 && missing) return <>{missing}</>
      if (!data && state.error.status === 403) return <Denied error={state.error} />
      return (
        <p class="banner warning">
          <b>{t.refused}</b> {state.error.message}
        </p>
      )
    case 'gone':
      return <p class="banner">{t.gone(clock(at))}</p>
  }
  return null
}
