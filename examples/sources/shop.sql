create table books (id integer primary key, name text not null, price numeric, in_print boolean, extra json);
insert into books values (1, 'Tidewater', 14.5, 1, '{"pages": 312}');
insert into books values (2, 'Salt Roads', 18, 0, null);
create table sales (shop text, day date, copies integer, primary key (shop, day));
insert into sales values ('harbour', '2026-03-01', 7);
