// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// answerTime bounds how long an answer is waited for; di-server holds a caller
// for 30 s.
const answerTime = time.Minute

// caller is a coordinator that calls di-server.
type caller struct {
	// From is the address that it calls from.
	From string
	// Namespace and Pod name it.
	Namespace string
	Pod       string
}

// line sends one caller's requests as deployed clients do: from the pod's own
// address, without Content-Type, with a body of {} also where there is nothing
// to say, head and body in two writes. It writes HTTP by hand, as a generator
// of load that computes much would measure itself.
type line struct {
	dialer    net.Dialer
	server    string
	by        *caller
	keepAlive bool
	question  []byte

	conn   net.Conn
	reader *bufio.Reader
}

func newLine(server string, by *caller, keepAlive bool) *line {
	l := &line{server: server, by: by, keepAlive: keepAlive, reader: bufio.NewReader(nil)}
	l.dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(by.From)}
	l.question = l.head(http.MethodGet, fmt.Sprintf("/replicas?namespace=%s&coordinator=%s", by.Namespace, by.Pod), len(emptyBody))
	return l
}

const emptyBody = "{}"

func (l *line) head(method, path string, length int) []byte {
	return fmt.Appendf(nil, "%s /v1alpha1%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: python-requests/2.28.1\r\n"+
		"Accept-Encoding: gzip, deflate\r\nAccept: */*\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n",
		method, path, l.server, length)
}

// get asks for the list of the caller's job.
func (l *line) get(ctx context.Context) ([]byte, error) {
	return l.ask(context.WithoutCancel(ctx), l.question, emptyBody)
}

// write asks for a change, and returns the collectors in the answer.
func (l *line) write(ctx context.Context, method, path, change string) ([]string, error) {
	body := fmt.Sprintf(`{"namespace":%q,"coordinator":%q,%s}`, l.by.Namespace, l.by.Pod, change)
	content, err := l.ask(ctx, l.head(method, path, len(body)), body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Collectors []string `json:"collectors"`
		} `json:"data"`
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		return nil, fmt.Errorf("decoding an answer: %w", err)
	}
	return answer.Data.Collectors, nil
}

// ask sends a request and returns the body of its answer.
func (l *line) ask(ctx context.Context, head []byte, body string) ([]byte, error) {
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	if !l.keepAlive {
		defer l.close()
	}
	if err := l.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return nil, fmt.Errorf("sending: %w", err)
	}
	if _, err := l.conn.Write(head); err != nil {
		return nil, fmt.Errorf("sending: %w", err)
	}
	if _, err := io.WriteString(l.conn, body); err != nil {
		return nil, fmt.Errorf("sending: %w", err)
	}
	response, err := http.ReadResponse(l.reader, nil)
	if err != nil {
		return nil, fmt.Errorf("receiving: %w", err)
	}
	content, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, fmt.Errorf("receiving: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.300s", response.Status, content)
	}
	return content, nil
}

func (l *line) connect(ctx context.Context) error {
	if l.conn != nil {
		return nil
	}
	conn, err := l.dialer.DialContext(ctx, "tcp", l.server)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	l.conn = conn
	l.reader.Reset(conn)
	return nil
}

// close ends the connection, if there is one.
func (l *line) close() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}
