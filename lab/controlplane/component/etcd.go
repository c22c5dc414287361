package component

import (
	"context"
	"flag"
	"fmt"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcd runs a store of one member. It takes a few flags of its own: everything else about a store
// that lives as long as a lab does is decided here.
func etcd(ctx context.Context, args []string) error {
	cfg := embed.NewConfig()
	flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
	flags.StringVar(&cfg.Dir, "data-dir", "", "directory of the data")
	flags.StringVar(&cfg.ClientTLSInfo.CertFile, "cert-file", "", "serving certificate")
	flags.StringVar(&cfg.ClientTLSInfo.KeyFile, "key-file", "", "key of the serving certificate")
	flags.StringVar(&cfg.ClientTLSInfo.TrustedCAFile, "trusted-ca-file", "", "authority of client certificates")
	listen := flags.String("listen-client-url", "", "URL to serve clients on: gRPC only")
	listenHTTP := flags.String("listen-client-http-url", "", "URL to serve HTTP on, as for its health")
	if err := flags.Parse(args); err != nil {
		return err
	}
	client, err := url.Parse(*listen)
	if err != nil {
		return fmt.Errorf("--listen-client-url: %w", err)
	}
	clientHTTP, err := url.Parse(*listenHTTP)
	if err != nil {
		return fmt.Errorf("--listen-client-http-url: %w", err)
	}

	cfg.Name = "lab"
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// With a URL of its own for HTTP, gRPC is served by its own transport. Both on one URL pass through that of net/http, which takes
	// more CPU for each call.
	cfg.ListenClientUrls, cfg.ListenClientHttpUrls = []url.URL{*client}, []url.URL{*clientHTTP}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ListenPeerUrls = nil // the only member has no peers to listen for
	cfg.ClientTLSInfo.ClientCertAuth = true
	cfg.SocketOpts.ReusePort = true // the parent holds the port with a socket of its own
	cfg.UnsafeNoFsync = true        // a lab outlives no crash of the computer
	cfg.EnableGRPCGateway = false   // would dial the server with the server's own certificate
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	cfg.LogOutputs = []string{"stderr"}
	cfg.LogLevel = "warn"
	// With no one to wait for, a quick election saves most of a second at each start.
	cfg.TickMs, cfg.ElectionMs = 20, 200

	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer server.Close()
	select {
	case err := <-server.Err():
		return err
	case <-server.Server.StopNotify():
		return nil
	case <-ctx.Done():
		return nil
	}
}
