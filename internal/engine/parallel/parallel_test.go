package parallel_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/parallel"
)

func TestFutureHasTheValue(t *testing.T) {
	for _, processors := range []int{1, 2} {
		before := runtime.GOMAXPROCS(processors)
		f := parallel.Begin(func() int { return 7 })
		if got := f.Wait(); got != 7 || !f.Ready() {
			t.Errorf("on %d processors: %d, ready %v", processors, got, f.Ready())
		}
		runtime.GOMAXPROCS(before)
	}
}

func TestFutureIsNotReadyBefore(t *testing.T) {
	before := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(before)
	begun := make(chan struct{})
	f := parallel.Begin(func() int {
		<-begun
		return 0
	})
	if f.Ready() {
		t.Error("a value is ready before it is computed")
	}
	close(begun)
	f.Wait()
}

func TestPanicOfAFutureReachesTheCaller(t *testing.T) {
	f := parallel.Begin(func() int { panic("no value") })
	defer func() {
		if p, ok := recover().(*parallel.Panic); !ok || p.Value != "no value" || !strings.Contains(p.String(), "TestPanicOfAFuture") {
			t.Errorf("the caller panics with %v", p)
		}
	}()
	f.Wait()
	t.Error("the caller does not panic")
}
