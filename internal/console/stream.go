package console

import (
	"fmt"
	"net/http"
	"time"
)

const (
	// maxStreams bounds the memory of the server: each stream keeps the nodes that it sent last. A browser has one for each tab.
	maxStreams = 32
	// frameInterval is the shortest time between two events of a stream: people read no faster, and what happens in between is one
	// change.
	frameInterval = 100 * time.Millisecond
	// heartbeat sets how often a silent stream shows that the server is there. The page waits for three of them.
	heartbeat = 10 * time.Second
	// writeTimeout sets how long a browser may take for one event before the stream is closed. It then opens another.
	writeTimeout = 30 * time.Second
)

// stream sends the state, and then what changes, as server-sent events: first an event "fleet", then "change", each with the JSON
// of the type of that name; "recorded" whenever the recording has other decisions. A reader that is slower than the changes gets them
// merged. A new stream starts with a new "fleet".
func (c *Console) stream(w http.ResponseWriter, r *http.Request) {
	leave, joined := c.hub.join()
	if !joined {
		writeProblem(w, &Problem{
			Status: http.StatusServiceUnavailable, Code: CodeBusy, Message: fmt.Sprintf("%d pages are open: close some of them", maxStreams),
		})
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	out := eventWriter{w: w, control: http.NewResponseController(w)}
	now, next := c.hub.current()
	sent := now.Fleet // a copy: the state has all pods, which a browser that does not read would keep
	if out.whole(now) != nil {
		return
	}
	decided, nextDecided := c.hub.lastDecided()
	if decided > 0 && out.recorded(decided) != nil {
		return
	}
	pause, beat := time.NewTicker(frameInterval), time.NewTicker(heartbeat)
	defer pause.Stop()
	defer beat.Stop()
	for {
		var err error
		select {
		case <-r.Context().Done():
			return
		case <-c.hub.done:
			return
		case <-beat.C:
			err = out.event("beat", []byte("{}"))
		case <-nextDecided:
			<-pause.C
			decided, nextDecided = c.hub.lastDecided()
			err = out.recorded(decided)
		case <-next:
			<-pause.C
			before := sent
			now, next = c.hub.current()
			sent = now.Fleet
			if before.Nodes == nil && sent.Nodes != nil {
				err = out.whole(now)
			} else {
				err = out.change(now, &before)
			}
		}
		if err != nil { // the browser has gone, or does not read
			return
		}
	}
}

// eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (e eventWriter) whole(s *state) error {
	data, err := s.whole()
	if err != nil {
		return err
	}
	return e.event("fleet", data)
}

func (e eventWriter) change(s *state, before *Fleet) error {
	data, err := s.changeSince(before)
	if err != nil {
		return err
	}
	return e.event("change", data)
}

func (e eventWriter) event(name string, data []byte) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // a test's recorder has none
	if _, err := fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", name, data); err != nil {
		return err
	}
	return e.control.Flush()
}
