package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// awsOptions are the flags of the command aws.
type awsOptions struct {
	listen, region, cluster string
}

func newAWS() *cobra.Command {
	var o awsOptions
	cmd := &cobra.Command{
		Use:   "aws",
		Short: "Serve the simulated AWS alone",
		Long: `Serve the simulated AWS alone: EC2, IAM, STS, SSM, EKS, SQS, Pricing and zonal shifts on one endpoint.

It prints the environment by which any AWS client finds it, and serves until interrupted.`,
		Example: `  dovetail-lab aws
  dovetail-lab aws --region eu-west-1 --cluster shop   # with what an account holds for an EKS cluster`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return serveAWS(cmd.Context(), o, cmd.OutOrStdout()) },
	}
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:4566", "address to serve on; port 0 chooses a free one")
	cmd.Flags().StringVar(&o.region, "region", "us-east-1", "region of the account")
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "name of an EKS cluster to set the account up for: network, roles, queue")
	return cmd
}

func serveAWS(ctx context.Context, o awsOptions, out io.Writer) error {
	sim, err := awsim.New(awsim.Options{Region: o.region})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("%w (choose another address with --listen)", err)
	}
	url := "http://" + listener.Addr().String()
	if o.cluster != "" {
		// There is no API server; the address is one that refuses connections.
		spec := awsim.ClusterSpec{Name: o.cluster, Version: "1.36", Endpoint: "https://127.0.0.1:1"}
		if err := sim.SeedCluster(spec); err != nil {
			return errors.Join(err, listener.Close())
		}
	}
	printExports(out, world.AWSEnvironment(url, o.region, awsim.Credentials{AccessKeyID: credential.AdminAccessKeyID, SecretAccessKey: "test"}))
	server := &http.Server{Handler: sim, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve AWS: %w", err)
	}
	return nil
}

// printExports writes variables as a shell reads them.
func printExports(out io.Writer, variables []world.Variable) {
	for _, v := range variables {
		fmt.Fprintf(out, "export %s=%s\n", v.Name, v.Value)
	}
}
