package patch

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxAttempts limits how often a change is tried against other writers. A conflict costs one read and one refused write,
// and three or more writers that hit the same object between our read and our write are rare: after that many attempts
// the caller's own backoff is the better remedy.
const maxAttempts = 4

// Clients are the ways to an object.
type Clients struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// SkipCache makes the first read live, for changes that a stale object would wrongly make look unnecessary.
	SkipCache bool
}

// ObjectWithRetry reads the object with o's name into o, applies mutate and writes what it changed outside the status.
// After a conflict it reads the object again, from the API server, and repeats. It returns the error of mutate without
// writing, and a conflict only if other writers were faster in every attempt.
func ObjectWithRetry[T client.Object](ctx context.Context, clients Clients, o T, mutate func(T) error) error {
	return withRetry(ctx, clients, o, mutate, ObjectFrom)
}

// StatusWithRetry is ObjectWithRetry for what mutate changes in the status.
func StatusWithRetry[T client.Object](ctx context.Context, clients Clients, o T, mutate func(T) error) error {
	return withRetry(ctx, clients, o, mutate, StatusFrom)
}

type writeFunc func(ctx context.Context, c client.Client, before, o client.Object) (bool, error)

func withRetry[T client.Object](ctx context.Context, clients Clients, o T, mutate func(T) error, write writeFunc) error {
	key, from := client.ObjectKeyFromObject(o), client.Reader(clients.Client)
	if clients.SkipCache {
		from = clients.Live
	}
	for attempt := 1; ; attempt++ {
		if err := from.Get(ctx, key, o); err != nil {
			return err
		}
		before := copyOf(o)
		if err := mutate(o); err != nil {
			return err
		}
		_, err := write(ctx, clients.Client, before, o)
		if !apierrors.IsConflict(err) || attempt == maxAttempts {
			return err
		}
		from = clients.Live
	}
}
