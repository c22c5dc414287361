// Package store reads and writes the objects of a cluster in its etcd, past the API server. The API server finds what is written as after
// the restore of a backup, and reports those that watch.
package store

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

const (
	// perTransaction is how many objects a transaction writes; etcd accepts 128.
	perTransaction = 120
	// writers is how many transactions are in flight: etcd makes one durable while it reads the next. singleWriters is
	// that for transactions of one object.
	writers, singleWriters = 4, 64
)

// registry is where the API server keeps objects in etcd.
const registry = "/registry/"

// Store is the etcd of a cluster. It is safe for concurrent use.
type Store struct{ client *clientv3.Client }

// Open connects to the etcd at a URL.
func Open(url string, settings *tls.Config) (*Store, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, TLS: settings, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	return &Store{client}, nil
}

// Close stops the connection.
func (s *Store) Close() error { return s.client.Close() }

// Object is an object as etcd has it.
type Object struct {
	// Key is its path below /registry/, such as "pods/default/web".
	Key string
	// Value is nil to delete it.
	Value []byte
}

// Read returns what is below a path such as "pods/default/".
func (s *Store) Read(ctx context.Context, path string) ([]Object, error) {
	answer, err := s.client.Get(ctx, registry+path, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read %s%s: %w", registry, path, err)
	}
	var out []Object
	for _, kv := range answer.Kvs {
		out = append(out, Object{Key: strings.TrimPrefix(string(kv.Key), registry), Value: kv.Value})
	}
	return out, nil
}

// Write writes or deletes what make returns for 0 to n, one by one: each object gets a version of its own, as from the
// API server. make is called from several goroutines.
func (s *Store) Write(ctx context.Context, n int, make func(i int) (Object, error)) error {
	return s.commit(ctx, batch{objects: n, each: 1, writers: singleWriters}, make)
}

// WriteMany writes many objects at a time, all with one version, in a fraction of the CPU time. It is for objects that
// nobody watches yet, and for load: a watch that is interrupted goes on after the version that it had last, and misses
// what else had that version.
func (s *Store) WriteMany(ctx context.Context, n int, make func(i int) (Object, error)) error {
	return s.commit(ctx, batch{objects: n, each: perTransaction, writers: writers}, make)
}

// batch is a number of objects to write, so many in each transaction, with so many transactions in flight.
type batch struct{ objects, each, writers int }

func (s *Store) commit(ctx context.Context, b batch, make func(i int) (Object, error)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(b.writers)
	for first := 0; first < b.objects; first += b.each {
		group.Go(func() error {
			var ops []clientv3.Op
			for i := first; i < min(first+b.each, b.objects); i++ {
				o, err := make(i)
				if err != nil {
					return err
				}
				if o.Value == nil {
					ops = append(ops, clientv3.OpDelete(registry+o.Key))
					continue
				}
				ops = append(ops, clientv3.OpPut(registry+o.Key, string(o.Value)))
			}
			if _, err := s.client.Txn(ctx).Then(ops...).Commit(); err != nil {
				return fmt.Errorf("write objects %d and following: %w", first, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// codec reads and writes objects of Kubernetes' own kinds as etcd has them.
func codec() *protobuf.Serializer {
	return protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme)
}

// Decode reads an object of one of Kubernetes' own kinds.
func Decode[T runtime.Object](data []byte, into T) (T, error) {
	_, _, err := codec().Decode(data, nil, into)
	if err != nil {
		return into, fmt.Errorf("read %T of etcd: %w", into, err)
	}
	return into, nil
}

// Encode returns an object of one of Kubernetes' own kinds as etcd has it. It also sets the kind, which a typed object has lost.
func Encode(kind, apiVersion string, o runtime.Object) ([]byte, error) {
	o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	return runtime.Encode(codec(), o)
}
