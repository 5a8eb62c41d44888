import { render } from 'preact'
import { useEffect, useLayoutEffect, useState } from 'preact/hooks'
import { Refused, get, type Session } from './api'
import { AppContext, useApp, useMedia, useSetting } from './app'
import { JobsView } from './jobs'
import { OtherView } from './other'
import { SignedOut, Unknown } from './problem'
import { Palette } from './palette'
import { useRoute } from './route'
import { Notes } from './section'
import { Keys } from './keys'
import { delay } from './stream'
import { en } from './texts.en'
import { zh } from './texts.zh'
import { Toasts } from './toast'
import './style.css'

/** useSession asks until the server answers, and returns the error meanwhile. */
function useSession(): [Session | undefined, Refused | undefined] {
  const [session, setSession] = useState<Session>()
  const [error, setError] = useState<Refused>()
  useLayoutEffect(() => {
    let timer: ReturnType<typeof setTimeout>
    const ask = (attempt: number) =>
      get<Session>('api/v1/session').then(
        (found) => {
          setSession(found)
          setError(undefined)
        },
        (failed: Error) => {
          setError(failed instanceof Refused ? failed : new Refused(0, '', failed.message))
          timer = setTimeout(() => void ask(attempt + 1), delay(attempt))
        },
      )
    void ask(0)
    return () => clearTimeout(timer)
  }, [])
  return [session, error]
}

function Main() {
  const route = useRoute()
  const [session, error] = useSession()
  const [language, setLanguage] = useSetting('language')
  const [chosen, setTheme] = useSetting('theme')
  const dark = useMedia('(prefers-color-scheme: dark)')
  const theme = chosen === 'light' || chosen === 'dark' ? chosen : dark ? 'dark' : 'light'
  const lang = language || session?.language || (navigator.language.startsWith('zh') ? 'zh' : 'en')
  const t = lang === 'zh' ? zh : en
  // Before the effects of the views, which read the colours.
  useLayoutEffect(() => {
    document.documentElement.dataset.theme = theme
  }, [theme])
  useEffect(() => {
    document.documentElement.lang = lang === 'zh' ? 'zh-CN' : 'en'
    document.title = 'name' in route ? `${route.name} · ${t.title}` : `${t[route.view]} · ${t.title}`
  }, [lang, location.hash])
  if (error?.status === 401) {
    return (
      <AppContext.Provider value={{ t, session, theme }}>
        <main>
          <SignedOut isAlone />
        </main>
      </AppContext.Provider>
    )
  }
  return (
    <AppContext.Provider value={{ t, session, theme }}>
      <a class="skip" href="#content" onClick={toContent}>
        {t.skip}
      </a>
      <header class="top">
        <a class="brand" href="#/jobs" aria-label={t.title}>
          <img src="./icon.svg" alt="" width="22" height="22" />
          <span class="wide-only">{t.title}</span>
        </a>
        <nav aria-label={t.views}>
          <a href="#/jobs" aria-current={route.view === 'jobs' || route.view === 'job' ? 'page' : undefined}>
            {t.jobs}
          </a>
          {session?.history.reachable && (
            <a href="#/history" aria-current={['history', 'recorded', 'comparison', 'sums'].includes(route.view) ? 'page' : undefined}>
              {t.history}
            </a>
          )}
          <a href="#/cluster" aria-current={route.view === 'cluster' ? 'page' : undefined}>
            {t.cluster}
          </a>
        </nav>
        <span class="who">{session && (session.user ? t.user(session.user, session.cluster) : session.cluster)}</span>
        <select aria-label={t.language} value={lang} onChange={(e) => setLanguage(e.currentTarget.value)}>
          <option value="en">English</option>
          <option value="zh">中文</option>
        </select>
        <select aria-label={t.theme} value={chosen || 'auto'} onChange={(e) => setTheme(e.currentTarget.value)}>
          <option value="auto">{t.themeAuto}</option>
          <option value="light">{t.themeLight}</option>
          <option value="dark">{t.themeDark}</option>
        </select>
        {session?.canSignOut && (
          <form method="post" action="./logout">
            <button>{t.signOut}</button>
          </form>
        )}
      </header>
      <main id="content" tabIndex={-1}>
        <Versions session={session} />
        {route.view === 'unknown' && <Unknown path={route.path} />}
        {route.view === 'jobs' && <Notes notes={session?.notes ?? []} />}
        {route.view === 'jobs' && <JobsView query={route.query} />}
        <OtherView route={route} />
      </main>
      <Toasts />
      <Keys />
      <Palette setTheme={setTheme} setLanguage={setLanguage} />
    </AppContext.Provider>
  )
}

/** Versions says that the operator is of another release than the page, until its user has read it. */
function Versions({ session }: { session: Session | undefined }) {
  const { t } = useApp()
  const [read, setRead] = useSetting('versions')
  const { version = '', operator = '' } = session ?? {}
  const both = `${version} ${operator}`
  const isSame = version.replace(/^v/, '') === operator.replace(/^v/, '')
  if (!operator || isSame || read === both) return null
  return (
    <p class="banner warning versions" role="status">
      <b>{t.otherVersion(version, operator)}</b> {t.otherVersionText}{' '}
      <button type="button" class="small" onClick={() => setRead(both)}>
        {t.understood}
      </button>
    </p>
  )
}

// The link would change the route.
function toContent(event: Event) {
  event.preventDefault()
  document.getElementById('content')?.focus()
}

const root = document.getElementById('app')
if (root) render(<Main />, root)
