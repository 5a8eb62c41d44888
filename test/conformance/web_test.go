// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build conformance

package conformance

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"strings"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// page is the web page of the caller, which kubectl di ui serves on this machine.
type page struct {
	trial  *trial
	url    *url.URL
	client *http.Client
}

// openPage starts the page until the test ends, and opens it as a browser does.
func (c *trial) openPage() *page {
	c.t.Helper()
	command := exec.CommandContext(c.ctx, c.world.kubectl, "di", "ui", "--namespace="+c.namespace)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig(c.Caller))
	// The plugin ends when its terminal does, and kubectl is replaced by it.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	output, err := command.StdoutPipe()
	expect.NoError(c.t, err)
	expect.NoError(c.t, command.Start())
	c.t.Cleanup(func() { _ = command.Wait() })
	line, err := bufio.NewReader(output).ReadString('\n')
	expect.NoError(c.t, err)
	p := &page{trial: c, client: &http.Client{}}
	p.url, err = url.Parse(strings.TrimSpace(line))
	expect.NoError(c.t, err)
	p.client.Jar, err = cookiejar.New(nil)
	expect.NoError(c.t, err)
	request, err := http.NewRequestWithContext(c.ctx, http.MethodGet, p.url.String(), http.NoBody)
	expect.NoError(c.t, err)
	response, err := p.client.Do(request)
	expect.NoError(c.t, err)
	expect.NoError(c.t, response.Body.Close())
	return p
}

// call calls the API of the page about the job, and returns its answer. Each status but 200 is an error.
func (p *page) call(method, path, body string) (string, error) {
	target := p.url.ResolveReference(&url.URL{Path: "/api/v1/namespaces/" + p.trial.namespace + "/jobs/" + job + path})
	request, err := http.NewRequestWithContext(p.trial.ctx, method, target.String(), strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("X-DI-UI", "1")
	request.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		var refusal struct{ Message string }
		err = fmt.Errorf("%s %s: status %d: %w", method, target.Path, response.StatusCode,
			cmp.Or(json.Unmarshal(content, &refusal), errors.New(refusal.Message)))
	}
	return string(content), err
}

func showOnPage(c *trial) error {
	pods := c.start(shape{})
	text, err := c.openPage().call(http.MethodGet, "", "")
	if err == nil && !strings.Contains(text, pods[0].Name) {
		c.t.Errorf("the page does not have pod %q: %s", pods[0].Name, text)
	}
	return err
}

func suspendOnPage(c *trial) error {
	c.create(manifest(c.Lifecycle, c.written(), shape{}))
	c.running(c.first())
	if _, err := c.openPage().call(http.MethodPost, "/actions/suspend", `{"dryRun":false}`); err != nil {
		return err
	}
	c.running(0)
	c.awaitCondition(v2alpha1.ConditionSuspended, "Suspended")
	return nil
}
