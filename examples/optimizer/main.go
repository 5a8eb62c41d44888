// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command optimizer is a service for the optimizer of DI Orchestrator that decides by the local rules. Start from it
// to decide by what you know of your cluster.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"time"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/autoscale/optimizer/local"
	"opendilab.org/di-orchestrator/autoscale/optimizer/remote"
)

// maxRequest is the maximum size of a request, in bytes.
const maxRequest = 8 << 20

func main() {
	address := flag.String("address", ":8443", "address to listen on")
	certificate := flag.String("tls-cert", "", "certificate; empty to serve without TLS")
	key := flag.String("tls-key", "", "private key of the certificate")
	flag.Parse()
	server := &http.Server{
		Addr: *address, Handler: handler(local.New(local.Defaults())), ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
	}
	if *certificate == "" {
		log.Fatal(server.ListenAndServe())
	}
	log.Fatal(server.ListenAndServeTLS(*certificate, *key))
}

// handler answers by an optimizer.
func handler(by optimizer.Optimizer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+remote.Path, func(writer http.ResponseWriter, request *http.Request) {
		var asked remote.Request
		if err := json.NewDecoder(http.MaxBytesReader(writer, request.Body, maxRequest)).Decode(&asked); err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := asked.Answer(request.Context(), by)
		if err != nil {
			http.Error(writer, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		writer.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(writer).Encode(answer); err != nil {
			log.Printf("answer: %v", err)
		}
	})
	return mux
}
