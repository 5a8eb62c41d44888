// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package coordinator calls di-server as deployed coordinators do.
package coordinator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"
)

// answerTime is the timeout of a request. di-server delays an answer by at most 30 s.
const answerTime = time.Minute

// jobsPerBlock is the number of jobs whose addresses differ only in the last byte.
const jobsPerBlock = 250

// Address returns the address of a job's pod. The coordinator is pod 0. A client may call from any
// address of 127.0.0.0/8.
func Address(job, pod int) string {
	return fmt.Sprintf("127.%d.%d.%d", 1+pod, job/jobsPerBlock, 1+job%jobsPerBlock)
}

// Caller is a coordinator that calls di-server.
type Caller struct {
	// From is the caller's source address.
	From string
	// Namespace and Pod identify the coordinator's pod.
	Namespace string
	Pod       string
}

// Line sends one caller's requests as deployed clients do: from the pod's own address, without
// Content-Type, always with a body, head and body in two writes. It writes HTTP by hand because a
// load generator that computes much would measure itself.
type Line struct {
	dialer    net.Dialer
	server    string
	by        *Caller
	keepAlive bool
	question  []byte

	conn   net.Conn
	reader *bufio.Reader
}

// NewLine returns a line to a server, over one connection or a new one for each request.
func NewLine(server string, by *Caller, keepAlive bool) *Line {
	l := &Line{server: server, by: by, keepAlive: keepAlive, reader: bufio.NewReader(nil)}
	l.dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(by.From)}
	l.question = l.head(http.MethodGet, fmt.Sprintf("/replicas?namespace=%s&coordinator=%s", by.Namespace, by.Pod), len(emptyBody))
	return l
}

const emptyBody = "{}"

func (l *Line) head(method, path string, length int) []byte {
	return fmt.Appendf(nil, "%s /v1alpha1%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: python-requests/2.28.1\r\n"+
		"Accept-Encoding: gzip, deflate\r\nAccept: */*\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n",
		method, path, l.server, length)
}

// Get requests the list of the caller's job.
func (l *Line) Get(ctx context.Context) ([]byte, error) {
	return l.ask(context.WithoutCancel(ctx), l.question, emptyBody)
}

// List requests the list of the caller's job and returns the URLs in the answer.
func (l *Line) List(ctx context.Context) ([]string, error) {
	content, err := l.Get(ctx)
	if err != nil {
		return nil, err
	}
	listed, err := decode(content)
	return slices.Concat(listed.Collectors, listed.Learners), err
}

// listed is the part of an answer that is decoded.
type listed struct {
	Collectors []string `json:"collectors"`
	Learners   []string `json:"learners"`
}

func decode(content []byte) (listed, error) {
	var answer struct {
		Data listed `json:"data"`
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		return listed{}, fmt.Errorf("decoding an answer: %w", err)
	}
	return answer.Data, nil
}

// Write requests a change and returns the collectors in the answer.
func (l *Line) Write(ctx context.Context, method, path, change string) ([]string, error) {
	body := fmt.Sprintf(`{"namespace":%q,"coordinator":%q,%s}`, l.by.Namespace, l.by.Pod, change)
	content, err := l.ask(ctx, l.head(method, path, len(body)), body)
	if err != nil {
		return nil, err
	}
	answer, err := decode(content)
	return answer.Collectors, err
}

// ask sends a request and returns the body of its answer.
func (l *Line) ask(ctx context.Context, head []byte, body string) ([]byte, error) {
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	if !l.keepAlive {
		defer l.Close()
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

func (l *Line) connect(ctx context.Context) error {
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

// Close closes the connection, if there is one.
func (l *Line) Close() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}
