package scale

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
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

// store is the etcd of a cluster.
type store struct{ client *clientv3.Client }

func openStore(c *world.Cluster) (*store, error) {
	url, settings, err := c.Etcd()
	if err != nil {
		return nil, fmt.Errorf("certificate of etcd: %w", err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, TLS: settings, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	return &store{client}, nil
}

func (s *store) close() error { return s.client.Close() }

// stored is an object as etcd has it.
type stored struct {
	key   string // without registry
	value []byte // nil to delete it
}

// read returns what is below a path such as "pods/default/".
func (s *store) read(ctx context.Context, path string) ([]stored, error) {
	answer, err := s.client.Get(ctx, registry+path, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read %s%s: %w", registry, path, err)
	}
	var out []stored
	for _, kv := range answer.Kvs {
		out = append(out, stored{key: strings.TrimPrefix(string(kv.Key), registry), value: kv.Value})
	}
	return out, nil
}

// write writes or deletes what make returns for 0 to n, one by one: each object gets a version of its own, as from the
// API server. make is called from several goroutines.
func (s *store) write(ctx context.Context, n int, make func(i int) (stored, error)) error {
	return s.commit(ctx, batch{objects: n, each: 1, writers: singleWriters}, make)
}

// writeMany writes many objects at a time, all with one version, in a fraction of the CPU time. It is for objects that
// nobody watches yet, and for load: a watch that is interrupted goes on after the version that it had last, and misses
// what else had that version.
func (s *store) writeMany(ctx context.Context, n int, make func(i int) (stored, error)) error {
	return s.commit(ctx, batch{objects: n, each: perTransaction, writers: writers}, make)
}

// batch is a number of objects to write, so many in each transaction, with so many transactions in flight.
type batch struct{ objects, each, writers int }

func (s *store) commit(ctx context.Context, b batch, make func(i int) (stored, error)) error {
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
				if o.value == nil {
					ops = append(ops, clientv3.OpDelete(registry+o.key))
					continue
				}
				ops = append(ops, clientv3.OpPut(registry+o.key, string(o.value)))
			}
			if _, err := s.client.Txn(ctx).Then(ops...).Commit(); err != nil {
				return fmt.Errorf("write objects %d and following: %w", first, err)
			}
			return nil
		})
	}
	return group.Wait()
}
