package console

import (
	"context"
	"fmt"
	"net/http"
)

// turns lets one request work at a time, and few wait.
type turns struct {
	// waiting has a token for each request that waits or works, turn one for the latter.
	waiting, turn chan struct{}
}

// maxWaiting limits how many requests may wait for the one that works: as many as people make at once.
const maxWaiting = 8

func newTurns() turns {
	return turns{waiting: make(chan struct{}, maxWaiting+1), turn: make(chan struct{}, 1)}
}

// begin waits for the turn of a request. A request that is canceled while it waits costs nothing; one that works is finished, which its
// bounds keep short.
func (t turns) begin(ctx context.Context) (end func(), _ error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case t.waiting <- struct{}{}:
	default:
		return nil, &Problem{
			Status: http.StatusServiceUnavailable, Code: CodeBusy,
			Message: fmt.Sprintf("%d other requests like this are being computed: try again", maxWaiting+1),
		}
	}
	select {
	case t.turn <- struct{}{}:
		return func() { <-t.turn; <-t.waiting }, nil
	case <-ctx.Done():
		<-t.waiting
		return nil, ctx.Err()
	}
}
