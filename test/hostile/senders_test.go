// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build hostile

package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// answerTime is the timeout of an intruder's request.
const answerTime = 15 * time.Second

// noAnswer is the outcome of a request that was disconnected or not answered.
const noAnswer = "no answer"

// unusedAddress returns the address of an attacker. No pod has it.
func unusedAddress(attacker int) string {
	return fmt.Sprintf("127.9.0.%d", attacker+1)
}

// dialFrom dials from an address of the loopback network.
func dialFrom(ctx context.Context, from, to string) (net.Conn, error) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: answerTime}
	return dialer.DialContext(ctx, "tcp", to)
}

// message is a request of an intruder.
type message struct {
	method, url, from string
	header            http.Header
	body              []byte
}

// send sends a message over a new connection and returns its outcome.
func send(ctx context.Context, m *message) string {
	bounded, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	request, err := http.NewRequestWithContext(bounded, m.method, m.url, bytes.NewReader(m.body))
	if err != nil {
		return err.Error()
	}
	if m.header != nil {
		request.Header = m.header
	}
	response, err := trusting(m.from).Do(request)
	if err != nil {
		return failed(ctx)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return failed(ctx)
	}
	return strconv.Itoa(response.StatusCode)
}

// trusting returns a client that calls from an address, trusts any certificate and follows no redirect.
func trusting(from string) *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // an intruder trusts whom it attacks
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				return dialFrom(ctx, from, address)
			},
		},
	}
}

func failed(ctx context.Context) string {
	if ctx.Err() != nil {
		return outOfTime
	}
	return noAnswer
}

// hold opens a connection, writes the given bytes, and keeps it open until it is disconnected or
// the attack ends.
func hold(ctx context.Context, from, to string, secure bool, write []byte) string {
	conn, err := dialFrom(ctx, from, to)
	if err != nil {
		return failed(ctx)
	}
	defer func() { _ = conn.Close() }()
	if secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // an intruder trusts whom it attacks
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(write); err != nil {
		return cutOff(ctx)
	}
	// It reads an early answer, sent before the request is complete, to its end.
	if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, io.EOF) {
		return cutOff(ctx)
	}
	return "cut off"
}

func cutOff(ctx context.Context) string {
	if ctx.Err() != nil {
		return "held"
	}
	return "cut off"
}

// holdMany keeps count connections open at a time from one address.
func holdMany(ctx context.Context, count int, one func() string) string {
	outcomes := make(chan string, count)
	for range count {
		go func() { outcomes <- one() }()
	}
	held := 0
	for range count {
		if <-outcomes == "held" {
			held++
		}
	}
	if ctx.Err() == nil {
		return "cut off"
	}
	return fmt.Sprintf("at most %d held", (held+99)/100*100)
}
