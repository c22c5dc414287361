package destroy_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

var configMaps = schema.GroupResource{Resource: "configmaps"}

// oneConfigMap is an API server with at most one ConfigMap. Refused are the verbs that it forbids.
type oneConfigMap struct {
	typedcorev1.ConfigMapInterface
	object  *corev1.ConfigMap
	version int
	refused string
}

func (o *oneConfigMap) may(verb string) error {
	if strings.Contains(o.refused, verb) {
		return apierrors.NewForbidden(configMaps, destroy.LedgerName, nil)
	}
	return nil
}

func (o *oneConfigMap) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.ConfigMap, error) {
	if err := o.may("get"); err != nil {
		return nil, err
	}
	if o.object == nil {
		return nil, apierrors.NewNotFound(configMaps, name)
	}
	return o.object.DeepCopy(), nil
}

func (o *oneConfigMap) put(c *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	o.version++
	o.object = c.DeepCopy()
	o.object.ResourceVersion = strconv.Itoa(o.version)
	return o.object.DeepCopy(), nil
}

func (o *oneConfigMap) Create(_ context.Context, c *corev1.ConfigMap, _ metav1.CreateOptions) (*corev1.ConfigMap, error) {
	if err := o.may("create"); err != nil {
		return nil, err
	}
	if o.object != nil {
		return nil, apierrors.NewAlreadyExists(configMaps, c.Name)
	}
	return o.put(c)
}

func (o *oneConfigMap) Update(_ context.Context, c *corev1.ConfigMap, _ metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	if err := o.may("update"); err != nil {
		return nil, err
	}
	if o.object == nil {
		return nil, apierrors.NewNotFound(configMaps, c.Name)
	}
	if c.ResourceVersion != o.object.ResourceVersion {
		return nil, apierrors.NewConflict(configMaps, c.Name, nil)
	}
	return o.put(c)
}

func TestTheConfigMapKeepsTheLedger(t *testing.T) {
	ledger := destroy.Ledger{Pauses: map[string]destroy.Pause{"general": {Since: noon, Kind: destroy.Planned, Message: "m"}}}
	loads := func(t *testing.T, api *oneConfigMap) {
		t.Helper()
		if got, err := (&destroy.ConfigMap{Client: api}).Load(t.Context()); err != nil || got.Pauses["general"].Message != "m" {
			t.Errorf("a new process loads %+v, %v", got, err)
		}
	}
	for name, between := range map[string]func(t *testing.T, api *oneConfigMap){
		"nothing happens": func(*testing.T, *oneConfigMap) {},
		"deleted":         func(_ *testing.T, api *oneConfigMap) { api.object = nil },
		"written by a former leader": func(t *testing.T, api *oneConfigMap) {
			if err := (&destroy.ConfigMap{Client: api}).Save(t.Context(), destroy.Ledger{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := &oneConfigMap{}
			store := &destroy.ConfigMap{Client: api}
			if got, err := store.Load(t.Context()); err != nil || len(got.Pauses) != 0 {
				t.Fatalf("%+v, %v", got, err)
			}
			for range 2 {
				if err := store.Save(t.Context(), ledger); err != nil {
					t.Fatal(err)
				}
			}
			between(t, api)
			if err := store.Save(t.Context(), ledger); err != nil {
				t.Fatal(err)
			}
			loads(t, api)
		})
	}
}

// An older chart's Role, and a ConfigMap that a person has edited: the error states what to do, and nothing is deleted.
func TestALedgerThatIsNotAvailableIsExplained(t *testing.T) {
	broken := &corev1.ConfigMap{Data: map[string]string{"ledger.json": "{"}}
	broken.Name = destroy.LedgerName
	for name, tt := range map[string]struct {
		api  *oneConfigMap
		want string
	}{
		"may not read":  {&oneConfigMap{refused: "get"}, "the controller's Role must allow"},
		"may not write": {&oneConfigMap{refused: "create,update"}, "the controller's Role must allow"},
		"corrupted":     {&oneConfigMap{object: broken}, "delete the ConfigMap to begin a new one"},
		"without data":  {&oneConfigMap{object: &corev1.ConfigMap{}}, "delete the ConfigMap to begin a new one"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, anyInstance, half, fleetOf("a", "b", "c")...)
			w.Budget = w.budget(half, &destroy.ConfigMap{Client: tt.api})
			for range 2 {
				err := w.NodeClaim(t.Context(), w.read(t, "a"), destroy.Why{Kind: destroy.Planned})
				if err == nil || destroy.IsPaused(err) || !strings.Contains(err.Error(), tt.want) || w.read(t, "a").DeletionTimestamp != nil {
					t.Errorf("error %v, want %q", err, tt.want)
				}
			}
			if since, err := w.Budget.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) || !since.Equal(noon) {
				t.Errorf("since %v: %v", since, err)
			}
			tt.api.refused, tt.api.object = "", nil
			if _, err := w.Budget.Ready(t.Context()); err != nil {
				t.Errorf("after the repair: %v", err)
			}
			if err := w.NodeClaim(t.Context(), w.read(t, "a"), destroy.Why{Kind: destroy.Planned}); err != nil {
				t.Errorf("after the repair: %v", err)
			}
		})
	}
}
