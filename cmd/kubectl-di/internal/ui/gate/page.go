// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	_ "embed"
	"html/template"
	"net/http"
	"strings"
)

// stylePath is that of the style of the pages of who is not signed in.
const stylePath = "/gate.css"

//go:embed page.html
var pageText string

//go:embed gate.css
var style []byte

// page escapes what it shows.
var page = template.Must(template.New("page").Parse(pageText))

// texts are those of a page in a language.
type texts struct {
	Lang, Title, Token, Namespace, Empty, SignIn, Kept string
	Once, Command, Why                                 string
}

// textsOf returns the texts of the form, or of a page that is not open, in the language of the browser.
func textsOf(r *http.Request, isForm bool) texts {
	said := texts{
		Lang: "en", Title: "This page is not open here", Token: "Bearer token of the API server", Namespace: "Namespace", Empty: "empty for all",
		SignIn: "Sign in", Kept: "The server keeps the token in its memory until you sign out. A service account gets one by",
		Once:    "The URL that kubectl di ui prints opens the page once. Run the command again, and open the URL that it prints:",
		Command: "Command", Why: "Other programs and pages of this computer cannot use the page, because they have no cookie of it.",
	}
	if strings.HasPrefix(r.Header.Get("Accept-Language"), "zh") {
		said = texts{
			Lang: "zh-CN", Title: "页面未在此打开", Token: "API server 的 Bearer token", Namespace: "命名空间", Empty: "留空表示全部",
			SignIn: "登录", Kept: "服务器只在内存中保存 token，直到退出登录。服务账号可这样获取：",
			Once:    "kubectl di ui 输出的网址只能打开一次。请重新运行该命令，并打开它输出的网址：",
			Command: "命令", Why: "本机的其他程序和网页没有该页面的 cookie，因此无法使用它。",
		}
	}
	if isForm {
		said.Title = said.SignIn
	}
	return said
}

// show answers with a page: the form, or that the page is not open.
func show(w http.ResponseWriter, r *http.Request, code int, isForm bool, message string) {
	_, isGiven := bearer(r)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// The caller may be gone.
	_ = page.Execute(w, struct {
		T                texts
		IsForm, HasToken bool
		Message          string
	}{textsOf(r, isForm), isForm, isGiven, message})
}

// showStyle answers with the style of the pages.
func showStyle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	// The caller may be gone.
	_, _ = w.Write(style)
}
