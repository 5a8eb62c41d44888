// What is said above a view whose data are not current.
import { useApp } from './app'
import { clock } from './format'
import type { Stream } from './stream'

/** Banner says that what is shown is not current. */
export function Banner({ stream }: { stream: Stream<unknown> }) {
  const { t } = useApp()
  const { state, at } = stream
  return (
    <div role="status" class="status">
      {state.kind === 'lost' && (
        <p class="banner warning">
          <b>{at ? t.lost(clock(at)) : t.lostFirst}</b> {state.message}
        </p>
      )}
      {state.kind === 'refused' && (
        <p class="banner warning">
          <b>{state.status === 404 ? t.notFound : state.status === 401 ? t.signIn : t.refused}</b> {state.message}
        </p>
      )}
      {state.kind === 'gone' && <p class="banner">{t.gone(clock(at))}</p>}
    </div>
  )
}
