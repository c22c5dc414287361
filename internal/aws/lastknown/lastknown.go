// Package lastknown keeps the last answers of AWS that launches need in ConfigMaps, so that a process that starts while AWS fails launches
// with them.
//
// An answer is compressed, has the time when AWS gave it, and is believed only by the cluster and in the region that it is about. What does
// not fit into a ConfigMap is not kept. Nothing is decided here about how old an answer may be: its user does.
package lastknown

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Answer names an answer that is kept.
type Answer string

// The answers that are kept, each in a ConfigMap of its own.
const (
	InstanceTypes Answer = "instance-types"
	Prices        Answer = "prices"
)

// Name is the name of the ConfigMap of an answer.
func (a Answer) Name() string { return "dovetail-last-known-" + string(a) }

const (
	// maxBytes bounds what is kept of an answer. A ConfigMap holds 1 MiB; 1,000 instance types take a fifth of it.
	maxBytes = 900 << 10
	// maxUnpacked bounds what is read from a ConfigMap: anybody may have written it.
	maxUnpacked = 64 << 20
	// writeTimeout sets how long the user of a new answer waits for it to be kept.
	writeTimeout = 5 * time.Second
	// renewAfter is the age from which a kept answer is written again, if nothing else has changed than its age: processes that restart one
	// after another write once.
	renewAfter = time.Hour
	// format is that of the answers. An older or newer process ignores another.
	format = "1"
)

// The keys of a ConfigMap.
const (
	keyAbout  = "about.json"
	keyAnswer = "answer.json.gz"
)

// about is what an answer is about.
type about struct {
	Format     string    `json:"format"`
	Region     string    `json:"region"`
	ClusterUID string    `json:"clusterUID"`
	At         time.Time `json:"at"`
}

// Store keeps answers for one cluster. It is safe for concurrent use. All replicas write the same, so that the last one may win.
type Store struct {
	Client             typedcorev1.ConfigMapInterface
	Region, ClusterUID string
	Now                func() time.Time

	mu sync.Mutex
	// kept is when the answers were given that are kept.
	kept map[Answer]time.Time
}

// Load reads a kept answer into a value, and returns when AWS gave it. It returns false if none is kept of this cluster and region.
func (s *Store) Load(ctx context.Context, a Answer, into any) (at time.Time, found bool, err error) {
	stored, err := s.Client.Get(ctx, a.Name(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return time.Time{}, false, nil
	}
	if err != nil {
		return time.Time{}, false, fmt.Errorf("read ConfigMap %s: %w", a.Name(), err)
	}
	var of about
	if err := json.Unmarshal([]byte(stored.Data[keyAbout]), &of); err != nil {
		return time.Time{}, false, fmt.Errorf("ConfigMap %s: data[%q] cannot be read: %w", a.Name(), keyAbout, err)
	}
	if of.Format != format || of.Region != s.Region || of.ClusterUID != s.ClusterUID || s.ClusterUID == "" || of.At.After(s.Now()) {
		return time.Time{}, false, nil
	}
	if err := unpack(stored.BinaryData[keyAnswer], into); err != nil {
		return time.Time{}, false, fmt.Errorf("ConfigMap %s: binaryData[%q] cannot be read: %w", a.Name(), keyAnswer, err)
	}
	s.note(a, of.At)
	return of.At, true, nil
}

func (s *Store) note(a Answer, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[Answer]time.Time{}
	}
	s.kept[a] = at
}

// Save keeps an answer that AWS gave at a time, unless one is kept that is hardly older.
func (s *Store) Save(ctx context.Context, a Answer, at time.Time, answer any) error {
	s.mu.Lock()
	before, known := s.kept[a]
	s.mu.Unlock()
	if known && at.Sub(before) < renewAfter {
		return nil
	}
	packed, err := pack(answer)
	if err != nil {
		return fmt.Errorf("keep the %s: %w", a, err)
	}
	of, err := json.Marshal(about{Format: format, Region: s.Region, ClusterUID: s.ClusterUID, At: at})
	if err != nil {
		return fmt.Errorf("keep the %s: %w", a, err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	wanted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: a.Name()},
		Data:       map[string]string{keyAbout: string(of)}, BinaryData: map[string][]byte{keyAnswer: packed},
	}
	_, err = s.Client.Update(ctx, wanted, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = s.Client.Create(ctx, wanted, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) { // another replica has written it
		return failed(a, err)
	}
	s.note(a, at)
	return nil
}

// failed states what to do if the controller lacks a permission, as with the Role of an older chart.
func failed(a Answer, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("write ConfigMap %s: %w; the controller's Role must allow to create ConfigMaps, and to get and update this one, "+
			"as the Role of the chart does", a.Name(), err)
	}
	return fmt.Errorf("write ConfigMap %s: %w", a.Name(), err)
}

// pack compresses an answer.
func pack(answer any) ([]byte, error) {
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(json.NewEncoder(zip).Encode(answer), zip.Close()); err != nil {
		return nil, err
	}
	if out.Len() > maxBytes {
		return nil, fmt.Errorf("they take %d KiB, and a ConfigMap has room for %d", out.Len()>>10, maxBytes>>10)
	}
	return out.Bytes(), nil
}

func unpack(packed []byte, into any) error {
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	return json.NewDecoder(io.LimitReader(zip, maxUnpacked)).Decode(into)
}
