package world

import (
	"fmt"
	"net"
	"strconv"
)

// ServeConsole makes the cluster's controller serve the console from its next start on: on this port of 127.0.0.1, or on any free one
// for 0. With a login, as in a cluster: on all interfaces, by HTTPS, and only to users with the right.
func (c *Cluster) ServeConsole(port int, login bool) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("serve the console: %w", err)
	}
	port = listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return err
	}
	scheme := "http"
	if login {
		scheme = "https"
		c.SetEnv("BIND_ADDRESS", "0.0.0.0")
	}
	c.SetEnv("CONSOLE_PORT", strconv.Itoa(port))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.console = fmt.Sprintf("%s://127.0.0.1:%d/", scheme, port)
	return nil
}

// ConsoleURL is the address of the console; empty if the controller serves none.
func (c *Cluster) ConsoleURL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.console
}
