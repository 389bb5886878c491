/* The rehearsal's ib_write_bw: takes perftest's arguments, opens its TCP port for real, and lets the fabric model decide the
 * rest. It is a C program because a rehearsal starts hundreds of them a second.
 *
 * Environment: LIUM_REHEARSAL_SOCKET, the model's Unix socket; LIUM_REHEARSAL_HOST, the emulated host. It asks one line,
 *     server HOST ARGUMENTS        or        client HOST ARGUMENTS SERVER-ADDRESS
 * with the arguments in the order of model_server.Arguments, and reads an exit code on a line of its own, then what is to be
 * printed. A server that is answered 0 listens, takes one client, and ends after it; one that is answered a number below 0
 * does so too, and then ends with that number above 0. No answer at all is a test that hangs. Called ethtool or rdma it asks
 * for the counters of the port, which it takes for its last argument. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int ask(const char *question)
{
	struct sockaddr_un model = {.sun_family = AF_UNIX};
	const char *path = getenv("LIUM_REHEARSAL_SOCKET");
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	if (!path || fd < 0)
		exit(70);
	strncpy(model.sun_path, path, sizeof(model.sun_path) - 1);
	if (connect(fd, (struct sockaddr *)&model, sizeof(model)) < 0) {
		perror("rehearsal model");
		exit(70);
	}
	if (write(fd, question, strlen(question)) < 0)
		exit(70);
	return fd;
}

/* Returns the exit code on the answer's first line; what is to be printed is still to come. */
static int hear(FILE *answer)
{
	char line[16];

	if (!answer || !fgets(line, sizeof(line), answer))
		exit(70);
	return atoi(line);
}

static void print(FILE *answer)
{
	char line[512];

	while (fgets(line, sizeof(line), answer))
		fputs(line, stdout);
	fflush(stdout);
}

/* Copies the answer to stdout and returns its exit code. */
static int take(int fd)
{
	FILE *answer = fdopen(fd, "r");
	int code = hear(answer);

	print(answer);
	return code;
}

static int serve(const char *host, const char *arguments, const char *own_address, int port)
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
	char question[512], word[64];
	FILE *answer;
	int on = 1, code, door, client;

	snprintf(question, sizeof(question), "server %s %s\n", host, arguments);
	answer = fdopen(ask(question), "r");
	code = hear(answer);
	if (code > 0) {
		print(answer);
		return code;
	}
	inet_pton(AF_INET, own_address, &here.sin_addr);
	door = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(door, (struct sockaddr *)&here, sizeof(here)) < 0 || listen(door, 1) < 0) {
		printf("Couldn't listen to port %d\n", port);
		return 1;
	}
	printf("\n************************************\n* Waiting for client to connect... *\n"
	       "************************************\n");
	fflush(stdout);
	client = accept(door, NULL, NULL);
	close(door);
	while (read(client, word, sizeof(word)) > 0)
		;
	print(answer);
	return -code;
}

static int run(const char *host, const char *arguments, const char *own_address, const char *server, int port)
{
	struct sockaddr_in here = {.sin_family = AF_INET}, there = {.sin_family = AF_INET, .sin_port = htons(port)};
	char question[512];
	int wire = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, own_address, &here.sin_addr);
	inet_pton(AF_INET, server, &there.sin_addr);
	if (bind(wire, (struct sockaddr *)&here, sizeof(here)) < 0 ||
	    connect(wire, (struct sockaddr *)&there, sizeof(there)) < 0) {
		printf("Couldn't connect to %s:%d\nUnable to open file descriptor for socket connection\n"
		       " Unable to init the socket connection\n", server, port);
		return 1;
	}
	snprintf(question, sizeof(question), "client %s %s %s\n", host, arguments, server);
	return take(ask(question));
}

static int misused(const char *argument)
{
	printf("ib_write_bw: invalid option -- '%s'\n Parser function exited with Error\n", argument);
	return 1;
}

int main(int argc, char **argv)
{
	const char *host = getenv("LIUM_REHEARSAL_HOST"), *address = getenv("LIUM_REHEARSAL_ADDRESS");
	const char *device = "mlx5_0", *server = NULL;
	enum { TCP_PORT, PORT, GID, ITERATIONS, QPS, DURATION, TCLASS, NUMBERS };
	const char letters[] = "pixnqD";
	long numbers[NUMBERS] = {18515, 1, -1, 5000, 1, 0, 0};
	int duplex = 0, gbits = 0;
	char arguments[256];

	if (!host || !address) {
		fputs("LIUM_REHEARSAL_HOST and LIUM_REHEARSAL_ADDRESS must be set\n", stderr);
		return 70;
	}
	if (strcmp(basename(argv[0]), "ib_write_bw")) {
		char question[512];

		snprintf(question, sizeof(question), "%s %s %s\n", basename(argv[0]), host, argv[argc - 1]);
		return take(ask(question));
	}
	for (int at = 1; at < argc; at++) {
		if (!strcmp(argv[at], "--version")) {
			puts("Version: 6.28");
			return 1;
		}
		const char *letter = argv[at][0] == '-' && argv[at][1] && !argv[at][2] ? strchr(letters, argv[at][1]) : NULL;
		const char *value = letter ? argv[at + 1] : !strncmp(argv[at], "--tclass=", 9) ? argv[at] + 9 : NULL;
		char *end;

		if (letter || value) {
			long number = value ? strtol(value, &end, 10) : 0;

			if (!value || end == value || *end)
				return misused(argv[at]);
			numbers[letter ? letter - letters : TCLASS] = number;
			at += letter != NULL;
		} else if (!strcmp(argv[at], "-d") && at + 1 < argc)
			device = argv[++at];
		else if (!strcmp(argv[at], "-b"))
			duplex = 1;
		else if (!strcmp(argv[at], "--report_gbits"))
			gbits = 1;
		else if (argv[at][0] != '-')
			server = argv[at];
		else if (strcmp(argv[at], "-F"))
			return misused(argv[at]);
	}
	snprintf(arguments, sizeof(arguments), "%s %ld %ld %ld %ld %ld %ld %d %d %ld", device, numbers[TCP_PORT], numbers[PORT],
		 numbers[GID], numbers[ITERATIONS], numbers[QPS], numbers[DURATION], duplex, gbits, numbers[TCLASS]);
	return server ? run(host, arguments, address, server, numbers[TCP_PORT])
		      : serve(host, arguments, address, numbers[TCP_PORT]);
}
