package console

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// shutdownTimeout sets how long requests may take to finish after Ctrl-C. An explanation takes a second or two.
const shutdownTimeout = 3 * time.Second

// Serve serves, and runs what is served, until the context is canceled.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, run func(context.Context)) {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // a browser that goes away is no news
	}
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	running.Go(func() {
		<-ctx.Done()
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if server.Shutdown(within) != nil {
			_ = server.Close() // what still runs only reads
		}
	})
	_ = server.Serve(listener) // it finishes with the context
	running.Wait()
}
