// WEBHOOK_SECRET=whsec_… go run receiver.go
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const tolerance = 5 * time.Minute

func verify(secret, header string, body []byte) bool {
	var times, signatures []string
	for _, field := range strings.Split(header, ",") {
		switch name, value, _ := strings.Cut(field, "="); name {
		case "t":
			times = append(times, value)
		case "v1":
			signatures = append(signatures, value)
		}
	}
	if len(times) != 1 {
		return false
	}
	seconds, err := strconv.ParseUint(times[0], 10, 40)
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(times[0] + "."))
	mac.Write(body)
	expected, matches := []byte(hex.EncodeToString(mac.Sum(nil))), false
	for _, one := range signatures {
		matches = hmac.Equal(expected, []byte(one)) || matches
	}
	age := time.Since(time.Unix(int64(seconds), 0))
	return matches && age <= tolerance && age >= -tolerance
}

type delivery struct {
	id   string
	body []byte
}

// In your service, this is a table: data in memory is lost if the process ends after its 204.
var work = make(chan delivery, 1000)

func run() {
	seen := map[string]bool{}
	for d := range work {
		if seen[d.id] { // INSERT … ON CONFLICT DO NOTHING
			continue
		}
		seen[d.id] = true
		var event struct {
			Event string
			Data  json.RawMessage
		}
		if err := json.Unmarshal(d.body, &event); err == nil {
			log.Println(event.Event, string(event.Data))
		}
	}
}

func main() {
	secret, port := os.Getenv("WEBHOOK_SECRET"), os.Getenv("PORT")
	if secret == "" {
		log.Fatal("WEBHOOK_SECRET is not set")
	}
	if port == "" {
		port = "9999"
	}
	go run()
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		// The unmodified bytes: verify them before parsing.
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil || r.Method != http.MethodPost || !verify(secret, r.Header.Get("X-Webhook-Signature"), body) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		select {
		case work <- delivery{r.Header.Get("X-Webhook-Delivery-Id"), body}:
			w.WriteHeader(http.StatusNoContent) // immediately; run does the work
		default:
			w.WriteHeader(http.StatusServiceUnavailable) // full: Crier retries
		}
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+port, nil))
}
