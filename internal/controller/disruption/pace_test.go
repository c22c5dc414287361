package disruption

import (
	"testing"
	"time"
)

func TestPaceShortensThePauseBetweenPasses(t *testing.T) {
	for want, l := range map[time.Duration]*Loop{passInterval: {Now: time.Now, Queue: &Queue{}}, passInterval / 5: {Now: time.Now, Queue: &Queue{}, Pace: 5}} {
		if got := l.pause(false, nil); got != want {
			t.Errorf("at pace %d the pause is %v, want %v", l.Pace, got, want)
		}
	}
}
