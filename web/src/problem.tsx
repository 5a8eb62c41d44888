// What is shown in place of a view that has nothing to show, and what its user can do about it.
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import type { Refused } from './api'
import { useApp } from './app'
import { copyText } from './copy'
import { Shape } from './mark'
import type { Kind } from './state'

/** Command is what its user can run, with a button that copies it. */
export function Command({ text }: { text: string }) {
  const { t } = useApp()
  const [copied, setCopied] = useState(false)
  return (
    <div class="command">
      <pre tabIndex={0} aria-label={t.command}>
        {text}
      </pre>
      <button type="button" class="small" onClick={() => void copyText(text, 'command.txt').then(setCopied)}>
        {copied ? t.copied : t.copy}
      </button>
    </div>
  )
}

interface ProblemProps {
  kind: Kind
  title: string
  /** Whether the page has no other title. */
  isAlone?: boolean
  children?: ComponentChildren
}

export function Problem({ kind, title, isAlone, children }: ProblemProps) {
  return (
    <section class="problem" aria-label={title}>
      <svg class="sign" width="44" height="44" viewBox="-8 -8 30 30" aria-hidden="true">
        <Shape kind={kind} x={0} y={0} />
      </svg>
      {isAlone ? <h1>{title}</h1> : <h2>{title}</h2>}
      {children}
    </section>
  )
}

/** Denied says which right is missing, and which commands give it. */
export function Denied({ error }: { error: Refused }) {
  const { t } = useApp()
  return (
    <Problem kind="leaving" title={error.right ? t.noRight(error.right) : t.refused}>
      <p>{error.message}</p>
      {error.grant.length > 0 && (
        <>
          <p class="quiet">{t.grantBy}</p>
          <Command text={error.grant.join('\n')} />
        </>
      )}
    </Problem>
  )
}

/** SignedOut says that the page is no longer open, and how it is opened again. */
export function SignedOut({ isAlone = false }: { isAlone?: boolean }) {
  const { t } = useApp()
  return (
    <Problem kind="missing" title={t.signedOut} isAlone={isAlone}>
      <p>{t.signIn}</p>
      <Command text="kubectl di ui --open" />
      <p>
        <a class="button" href="./">
          {t.again}
        </a>
      </p>
    </Problem>
  )
}

/** Unknown is shown for an address without a view. */
export function Unknown({ path }: { path: string }) {
  const { t } = useApp()
  return (
    <Problem kind="missing" title={t.unknownAddress} isAlone>
      <p>
        <code>{path}</code>
      </p>
      <p>
        <a class="button" href="#/jobs">
          {t.back}
        </a>{' '}
        <a class="button" href="#/cluster">
          {t.cluster}
        </a>
      </p>
    </Problem>
  )
}
