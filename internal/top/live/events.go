package live

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mostEvents limits how many events of one object are read: the API server keeps those of an hour, and repeated ones as one.
const mostEvents = 200

// EventsOf returns events of an object. The reader reads the API server and not a cache: it selects by the fields of the object.
func EventsOf(ctx context.Context, reader client.Reader, kind, name string) ([]corev1.Event, error) {
	list := &corev1.EventList{}
	of := client.MatchingFields{"involvedObject.kind": kind, "involvedObject.name": name}
	err := reader.List(ctx, list, of, client.Limit(mostEvents))
	return list.Items, err
}
