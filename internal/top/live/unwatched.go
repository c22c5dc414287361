package live

import (
	"context"
	"reflect"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

const (
	// unwatchedAge sets how old lists of kinds may be that are not watched, such as PodDisruptionBudgets and volumes. In a large cluster, it
	// is unwatchedShare times as long as listing took: then that is at most a twentieth of the time of one core, here and in the API server.
	unwatchedAge   = 5 * time.Second
	unwatchedShare = 20
)

// unwatched has the objects of the kinds that are not watched, as the API server listed them last. Its owner uses it in one goroutine at a
// time. The objects are shared with each View that is made of them.
type unwatched struct {
	objects map[reflect.Type][]client.Object
	// began is the time when the first of them was listed, took how long all lists took.
	began time.Time
	took  time.Duration
}

// expire forgets lists that are too old.
func (u *unwatched) expire(now time.Time) {
	if u.objects == nil || now.Sub(u.began) >= max(unwatchedAge, unwatchedShare*u.took) {
		u.objects, u.began, u.took = map[reflect.Type][]client.Object{}, now, 0
	}
}

// list is a manifest.Lister.
func (u *unwatched) list(ctx context.Context, cluster client.Reader, kind client.ObjectList) ([]client.Object, error) {
	of := reflect.TypeOf(kind)
	if known, found := u.objects[of]; found {
		return known, nil
	}
	began := time.Now()
	found, err := manifest.List(ctx, cluster, kind, manifest.Scrub)
	u.took += time.Since(began)
	if err == nil {
		u.objects[of] = found
	}
	return found, err
}
