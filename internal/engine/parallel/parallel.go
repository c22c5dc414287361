// Package parallel runs parts of one computation at the same time. The result must not depend on it: each part has state of its
// own, and the caller joins the results in a fixed order.
package parallel

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Panic is the panic of a part.
type Panic struct {
	Value any
	// Stack is that of the part's goroutine, which the caller's does not show.
	Stack []byte
}

// String is the value, with the stack.
func (p *Panic) String() string { return fmt.Sprintf("%v\n%s", p.Value, p.Stack) }

// caught runs a part and returns its panic; nil if there was none.
func caught(part func()) (panicked any) {
	defer func() {
		if value := recover(); value != nil {
			panicked = &Panic{value, debug.Stack()}
		}
	}()
	part()
	return nil
}

// Future is a value that is computed while others are.
type Future[T any] struct {
	done     chan struct{}
	value    T
	panicked any
}

// Begin computes a value on another goroutine; on this one, before it returns, if only one runs at a time (GOMAXPROCS). A panic
// becomes one of anyone who waits, so that anyone who recovers from those of the caller recovers from it.
func Begin[T any](compute func() T) *Future[T] {
	f := &Future[T]{done: make(chan struct{})}
	run := func() {
		defer close(f.done)
		f.panicked = caught(func() { f.value = compute() })
	}
	if runtime.GOMAXPROCS(0) == 1 {
		run()
	} else {
		go run()
	}
	return f
}

// Ready reports whether Wait returns at once.
func (f *Future[T]) Ready() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// Wait returns the value. A panic of the computation becomes a panic of the caller.
func (f *Future[T]) Wait() T {
	<-f.done
	if f.panicked != nil {
		panic(f.panicked)
	}
	return f.value
}
