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
	// writers is how many transactions are in flight: etcd makes one durable while it reads the next.
	writers = 4
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

// write writes or deletes what make returns for 0 to n, in transactions, some of them at a time. make is called from several
// goroutines.
func (s *store) write(ctx context.Context, n int, make func(i int) (stored, error)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for first := 0; first < n; first += perTransaction {
		group.Go(func() error {
			var ops []clientv3.Op
			for i := first; i < min(first+perTransaction, n); i++ {
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
