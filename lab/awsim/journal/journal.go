// Package journal keeps an account in a file, so that it can be taken up again.
//
// The account is a function of its settings and of the calls that may have changed it, in their order and at their
// times: the file holds these, one JSON object a line, and anyone who opens it makes the calls again, on a clock that
// shows the times of old. So nothing of the account has to know how it is stored. A line that was cut off by a crash at
// the end of the file is dropped: its call was never answered.
package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// Settings are what an account is, besides the calls that were made. One that is taken up again must have the same.
type Settings struct {
	Format     int // of the file
	Opened     time.Time
	Region     string
	AccountID  string
	Seed       uint64
	Cluster    string `json:",omitempty"` // that the account was set up for
	EnforceIAM bool   `json:",omitempty"`
}

// String names the settings as people choose them.
func (s Settings) String() string {
	text := "region " + s.Region
	if s.Cluster != "" {
		text += ", cluster " + s.Cluster
	}
	if s.EnforceIAM {
		text += ", IAM enforced"
	}
	return text
}

const format = 1

// entry is a call.
type entry struct {
	At     time.Time
	Method string
	URL    string // path and query
	Host   string
	Header map[string]string
	Body   []byte `json:",omitempty"`
}

// headers are those that a call is understood by.
var headers = []string{"Authorization", "Content-Type", "X-Amz-Target", "X-Amz-Security-Token", "X-Amz-Date"}

// Journal is the file of one account. It implements protocol.Journal.
type Journal struct {
	// Settings of the account.
	Settings Settings
	// Clock is that of the account.
	Clock *Clock

	mu      sync.Mutex
	file    *os.File
	entries []entry // that were read and have to be made again
}

// Open reads the file of an account, or begins one with these settings. Until Replay, the account's clock shows when it
// was opened first.
func Open(path string, s Settings) (*Journal, error) {
	s.Format = format
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state of the account: %w", err)
	}
	j := &Journal{file: file}
	if err := j.read(s); err != nil {
		return nil, errors.Join(fmt.Errorf("state of the account %s: %w", path, err), file.Close())
	}
	j.Clock = newClock(j.Settings.Opened)
	return j, nil
}

// read reads all whole lines, and leaves the file where the next is to be written.
func (j *Journal) read(s Settings) error {
	in := bufio.NewReader(j.file)
	var end int64
	for n := 0; ; n++ {
		line, err := in.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			if err := j.file.Truncate(end); err != nil {
				return err
			}
			if _, err := j.file.Seek(end, io.SeekStart); err != nil {
				return err
			}
			if n == 0 {
				j.Settings = s
				return j.write(s)
			}
			return nil
		case err != nil:
			return err
		}
		end += int64(len(line))
		if n == 0 {
			if err := json.Unmarshal(line, &j.Settings); err != nil || j.Settings.Format != format {
				return errors.New("not the state of an account")
			}
			then := j.Settings
			then.Opened = s.Opened
			if then != s {
				return fmt.Errorf("it is of an account with other settings: %s; this one has %s (choose the same, or another file)", j.Settings, s)
			}
			continue
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("line %d: %w", n+1, err)
		}
		j.entries = append(j.entries, e)
	}
}

// write appends a line.
func (j *Journal) write(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = j.file.Write(append(line, '\n'))
	return err
}

// Replay makes the calls of old again with do, each at its time, and then lets the clock go. It returns how many there
// were.
func (j *Journal) Replay(do func(*http.Request) error) (int, error) {
	for n, e := range j.entries {
		r, err := e.request()
		if err != nil {
			return n, fmt.Errorf("call %d: %w", n+1, err)
		}
		j.Clock.show(e.At)
		if err := do(r); err != nil {
			return n, fmt.Errorf("replay call %d of %s: %w", n+1, e.At.Format(time.RFC3339), err)
		}
	}
	n := len(j.entries)
	j.entries = nil
	j.Clock.goOn()
	return n, nil
}

func (e entry) request() (*http.Request, error) {
	r, err := http.NewRequest(e.Method, "http://"+e.Host+e.URL, bytes.NewReader(e.Body))
	if err != nil {
		return nil, err
	}
	for name, value := range e.Header {
		r.Header.Set(name, value)
	}
	return r, nil
}

// Perform implements protocol.Journal: calls that may change something are made one after the other, each at one
// moment, and written down before they are answered.
func (j *Journal) Perform(r *protocol.Request, do func() (any, error)) (any, error) {
	if waits(r) {
		out, err := do()
		if err != nil {
			return nil, err
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		return out, j.record(r, j.Clock.Now())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	at := j.Clock.hold()
	defer j.Clock.goOn()
	out, failed := do()
	if err := j.record(r, at); err != nil {
		return nil, fmt.Errorf("write the state of the account: %w", err)
	}
	return out, failed
}

// waits reports whether a call may take long: what it does, it does at its end.
func waits(r *protocol.Request) bool { return r.Service == "sqs" && r.Action == "ReceiveMessage" }

func (j *Journal) record(r *protocol.Request, at time.Time) error {
	e := entry{At: at, Method: r.HTTP.Method, URL: r.HTTP.URL.RequestURI(), Host: r.HTTP.Host, Header: map[string]string{}, Body: r.Body}
	for _, name := range headers {
		if value := r.HTTP.Header.Get(name); value != "" {
			e.Header[name] = value
		}
	}
	if waits(r) { // by then, what it waited for is there
		var body map[string]any
		if err := json.Unmarshal(r.Body, &body); err != nil {
			return err
		}
		body["WaitTimeSeconds"] = 0
		var err error
		if e.Body, err = json.Marshal(body); err != nil {
			return err
		}
	}
	return j.write(e)
}

// Close closes the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file.Close()
}
